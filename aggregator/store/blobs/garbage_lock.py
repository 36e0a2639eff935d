"""The lock between collections of garbage and those who read blobs for long: a backup, an examination.

A file's lock, so that it holds between processes and is gone with whoever held it. A collection takes it for one batch of
blobs at a time and never waits; readers share it for as long as they need.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import StoreUnavailable
from shared.process.disk import why_unusable

LOCK_FILE = "collection.lock"
"""In the state directory."""


class BackupIsRunning(Exception):
    """Somebody reads the blobs; collect later."""


@contextmanager
def collecting(folder: Path) -> Iterator[None]:
    """Keep readers out for the time of the block.

    Raises:
        BackupIsRunning: There are some.
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
    """Have nothing collected for the time of the block; waits for a batch that is being removed.

    Raises:
        StoreUnavailable: The folder cannot be used.
    """
    # Who may only read the folder can share the lock too, once an aggregator has made its file.
    flags = os.O_RDONLY if (folder / LOCK_FILE).exists() else os.O_RDWR | os.O_CREAT
    with _opened(folder, flags) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextmanager
def _opened(folder: Path, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(folder / LOCK_FILE, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
