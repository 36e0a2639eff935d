"""Refusals of the disk as `StoreUnavailable`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable
from shared.process.resources import remedy_for

FULL = f"the aggregator cannot write to its disk: {os.strerror(errno.ENOSPC)}"
"""Sentence for a full disk."""


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn an OSError within the block into `StoreUnavailable`.

    Raises:
        StoreUnavailable: The disk is full or away, or the process has too many files open.
    """
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error}{remedy_for(error)}"
        raise StoreUnavailable(f"the aggregator cannot write to its disk: {why}") from error
