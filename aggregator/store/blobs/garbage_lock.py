"""Lock between garbage collection and long readers of blobs, such as a backup or a check.

It is a file lock: it works between processes, and ends with its holder's process. Garbage collection takes it for one batch
of blobs at a time and never waits; readers share it for as long as they need.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.disk import why_unusable

LOCK_FILE = "collection.lock"
"""Name of the lock's file in the state directory."""


class BackupIsRunning(Exception):
    """A reader holds the lock; collect later."""


@contextmanager
def collecting(folder: Path) -> Iterator[None]:
    """Hold the lock against readers within the block.

    Raises:
        BackupIsRunning: A reader holds the lock.
        StoreUnavailable: The folder cannot be used.
    """
    with _opened(folder, os.O_RDWR | os.O_CREAT) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupIsRunning from None
        yield


@contextmanager
def no_collection(folder: Path) -> Iterator[None]:
    """Prevent garbage collection within the block; waits for a batch that is being removed.

    Raises:
        StoreUnavailable: The folder cannot be used.
    """
    # A process that may only read the folder can share the lock too, once an aggregator has created the file.
    flags = os.O_RDONLY if (folder / LOCK_FILE).exists() else os.O_RDWR | os.O_CREAT
    with _opened(folder, flags) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextmanager
def _opened(folder: Path, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(folder / LOCK_FILE, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
