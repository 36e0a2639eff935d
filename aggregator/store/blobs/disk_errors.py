"""Refusals of the disk as `StoreUnavailable`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn an OSError within the block into `StoreUnavailable`.

    Raises:
        StoreUnavailable: The disk is full or away.
    """
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the aggregator cannot write to its disk: {error.strerror or error}") from error
