"""Durable changes of files and folders, and the sentence for a disk that refuses.

Aggregator and trainer change their state directories only through these functions. Each is a named step with a failpoint
before and after it (failpoints.py); a test checks that both packages use nothing else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.failpoints import passing
from fedplcc.shared.process.resources import remedy_for

OTHERS = 0o027
"""Permissions that no state has: others may do nothing, and the user's group may not write."""


def why_unusable(folder: Path, error: OSError) -> str:
    """Return the sentence for a folder that a process cannot use, with a remedy where one is known."""
    sentence = f"cannot use the state directory {folder}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        # In a container this is a mounted folder of the host: the owner's number decides.
        return f"{sentence}{remedy_for(error)}, or choose another with --state-dir"
    return f"{sentence}{remedy_for(error)}"


@contextmanager
def told_without_paths(what: str) -> Iterator[None]:
    """Within the block, turn errors of the disk into `StoreUnavailable`, without their paths, which stay on this machine.

    Args:
        what: What is kept in the state directory and fails: "the decisions of this site's owner cannot be read or kept".
    """
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"{what}: {error.strerror or type(error).__name__}"
            f"{remedy_for(error) or '; see that its state directory can be read and written'}"
        ) from error


def durable_step(*name: str) -> passing:
    """Return a context manager with a failpoint before and after a change on the disk."""
    return passing(*name)


def fsync_file(descriptor: int, step: str) -> None:
    """Make a file's bytes durable.

    Raises:
        OSError: The disk refuses; any of the bytes may be missing on it.
    """
    with durable_step(step, "fsync"):
        os.fsync(descriptor)


def fsync_folder(folder: Path, step: str = "folder") -> None:
    """Make the names in a folder durable: only then does a renamed or linked file survive a power cut.

    Raises:
        OSError: The folder cannot be opened, or the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with durable_step(step, "fsync_folder"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read it. A pipe, whose writer may never come, and a device, which may have no end, are refused.

    Raises:
        OSError: It is none, or cannot be opened.
    """
    return open(_regular(path, os.O_RDONLY), "rb")


def _regular(path: Path, how: int, mode: int = 0) -> int:
    """Return the descriptor of a regular file; another one holds nobody, and gets no byte."""
    descriptor = os.open(path, how | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    wrong = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
    raise OSError(wrong, os.strerror(wrong) if stat.S_ISDIR(kind) else "it is no regular file", str(path))


def read_regular(path: Path, most_bytes: int = -1) -> bytes:
    """Return what a regular file has, of a longer one this much.

    Raises:
        OSError: It is none, or cannot be read.
    """
    with open_regular(path) as file:
        return file.read(most_bytes)


@contextmanager
def locked(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Within the block no other process that asks for the same lock goes on; the system ends the turn of one that dies.

    Args:
        path: A file, made if it is missing, or a folder.
        waits: Whether to wait for the turn of another process.

    Raises:
        BlockingIOError: Another process has its turn, and nobody waits for it.
        OSError: It cannot be opened or made.
    """
    how = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NONBLOCK
    descriptor = os.open(path, how | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path, step: str) -> None:
    """Rename a file, replacing any file of the new name.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "rename"):
        os.rename(source, target)


def link(source: Path, target: Path, step: str) -> None:
    """Give a file a second name.

    Raises:
        FileExistsError: A file of this name exists.
        OSError: The disk refuses.
    """
    with durable_step(step, "link"):
        os.link(source, target)


def deny_others() -> None:
    """Let no file or folder that this process makes be opened by others, or be written by its group."""
    os.umask(os.umask(OTHERS) | OTHERS)


@contextmanager
def as_closed_as(folder: Path) -> Iterator[None]:
    """Let new files and folders be open to nobody whom a folder is not open to, and never to others."""
    closed = OTHERS | (~stat.S_IMODE(folder.stat().st_mode) & 0o077)
    before = os.umask(closed)
    os.umask(before | closed)
    try:
        yield
    finally:
        os.umask(before)


def close_to_others(folder: Path) -> None:
    """Take what others may do in a folder from them, if it is this user's."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o007:
        with suppress(PermissionError):
            folder.chmod(mode & ~0o007)


def make_folder(folder: Path, step: str, *, mode: int = 0o750) -> None:
    """Make a folder unless it exists.

    Args:
        step: Prefix of the failpoints.
        mode: Permissions of a new folder, before the process's umask.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "mkdir"):
        folder.mkdir(mode, exist_ok=True)


def make_state_folder(folder: Path, step: str) -> None:
    """Make a process's own folder where there is none, with those above it, so that a power cut takes none of them.

    Raises:
        OSError: The disk refuses.
    """
    if folder.is_dir():
        if not any(folder.iterdir()):
            with suppress(OSError):  # above a mounted folder there may be nothing that can be written
                fsync_folder(folder.parent, step)  # whoever made it may have died before this
        return
    if not folder.parent.is_dir():
        make_state_folder(folder.parent, step)
    make_folder(folder, step)
    fsync_folder(folder.parent, step)


def allocate(path: Path, num_bytes: int, step: str) -> None:
    """Make a file that really takes so many bytes of the disk, durably; what is in it does not matter.

    Raises:
        OSError: The disk refuses; the file may be there, and smaller.
    """
    descriptor = _regular(path, os.O_WRONLY | os.O_CREAT, 0o640)
    try:
        with durable_step(step, "allocate"):
            os.posix_fallocate(descriptor, 0, num_bytes)
        fsync_file(descriptor, step)
    finally:
        os.close(descriptor)
    fsync_folder(path.parent, step)


def append(path: Path, data: bytes, step: str, *, at: int, mode: int = 0o640) -> int:
    """Append to a file durably, in place of whatever lies beyond a position; returns the new end.

    The name of a new file is durable only after `fsync_folder`.

    Args:
        path: The file; made if it is missing.
        step: Prefix of the failpoints.
        at: Where its good bytes end; the file's own end if that is smaller.
        mode: Permissions of a new file, before the process's umask.

    Raises:
        OSError: The disk refuses; beyond `at` there may be anything.
    """
    descriptor = _regular(path, os.O_WRONLY | os.O_CREAT, mode)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        at = min(at, os.fstat(descriptor).st_size)
        with durable_step(step, "append"):
            os.ftruncate(descriptor, at)
            file.seek(at)
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync_file(descriptor, step)
    return at + len(data)


def remove(path: Path, step: str) -> None:
    """Remove a file; a missing file is fine.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "remove"):
        path.unlink(missing_ok=True)


def remove_tree(folder: Path, step: str) -> None:
    """Remove a folder with its content, ignoring files that cannot be removed."""
    with durable_step(step, "remove_tree"):
        shutil.rmtree(folder, ignore_errors=True)


def replace_file(path: Path, data: bytes, step: str, *, mode: int = 0o640) -> None:
    """Replace a file's content atomically: write a temporary file, fsync it, rename it.

    Args:
        step: Prefix of the failpoints.
        mode: Permissions of a new file, before the process's umask.

    Raises:
        OSError: The disk refuses; the file is unchanged.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = _regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        with durable_step(step, "write"):
            file.write(data)
            file.flush()
        fsync_file(file.fileno(), step)
    rename(temporary, path, step)
    fsync_folder(path.parent, step)
