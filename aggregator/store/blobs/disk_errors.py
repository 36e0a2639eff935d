"""What a disk refuses, as the error that its cause deserves: nobody's request was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn the operating system's refusals into an error that says so.

    Raises:
        StoreUnavailable: The disk is full or away.
    """
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the aggregator cannot write to its disk: {error.strerror or error}") from error
