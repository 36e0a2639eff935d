"""Refusals of the disk as `StoreUnavailable`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable

FULL = f"the aggregator cannot write to its disk: {os.strerror(errno.ENOSPC)}"
"""Sentence for a full disk."""


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
