"""Refusals of the disk as `StoreUnavailable`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.resources import remedy_for


def refused_by_disk(error: OSError) -> StoreUnavailable:
    """Return the error for a disk that refuses, with a remedy where one is known."""
    why = f"{error.strerror or error}{remedy_for(error)}"
    return StoreUnavailable(f"the aggregator cannot write to its disk: {why}")


def full_disk() -> StoreUnavailable:
    """Return the error for a disk without room."""
    return refused_by_disk(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turn an OSError within the block into `StoreUnavailable`.

    Raises:
        StoreUnavailable: The disk is full or away, or the process has too many files open.
    """
    try:
        yield
    except OSError as error:
        raise refused_by_disk(error) from error
