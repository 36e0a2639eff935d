"""What durable files need of the operating system, and what to say when it refuses.

Every change that aggregator and trainer make to their state directories goes through these functions: each is a step with a
name, and has a failpoint before and after it (failpoints.py). A test holds both packages to that.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from shared.process.failpoints import passing


def why_unusable(folder: Path, error: OSError) -> str:
    """The sentence for a folder that a process cannot use, with what to do where that is known."""
    sentence = f"cannot use the state directory {folder}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        # In a container this is a mounted folder of the host: its owner counts by number.
        sentence += f"; make it writable for user id {os.geteuid()}, or choose another with --state-dir"
    return sentence


def durable_step(*name: str) -> passing:
    """A block that changes what is on the disk; there is a failpoint before and one after it."""
    return passing(*name)


def fsync_file(descriptor: int, step: str) -> None:
    """Make a file's bytes durable.

    Raises:
        OSError: The disk refuses; nobody knows then which of the bytes it has.
    """
    with durable_step(step, "fsync"):
        os.fsync(descriptor)


def fsync_folder(folder: Path, step: str = "folder") -> None:
    """Make the names in a folder durable: a file that was renamed or linked is there after a power cut only then.

    Raises:
        OSError: The folder cannot be opened, or the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with durable_step(step, "fsync_folder"):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path, step: str) -> None:
    """Give a file another name, in place of what has it.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "rename"):
        os.rename(source, target)


def link(source: Path, target: Path, step: str) -> None:
    """Give a file a second name.

    Raises:
        FileExistsError: There is a file of this name.
        OSError: The disk refuses.
    """
    with durable_step(step, "link"):
        os.link(source, target)


def make_folder(folder: Path, step: str) -> None:
    """Make a folder where there is none.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "mkdir"):
        folder.mkdir(exist_ok=True)


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


def remove(path: Path, step: str) -> None:
    """Take a file away; one that is not there is fine.

    Raises:
        OSError: The disk refuses.
    """
    with durable_step(step, "remove"):
        path.unlink(missing_ok=True)


def remove_tree(folder: Path, step: str) -> None:
    """Take a folder away with everything in it, as far as the disk lets it go."""
    with durable_step(step, "remove_tree"):
        shutil.rmtree(folder, ignore_errors=True)


def replace_file(path: Path, data: bytes, step: str, *, mode: int = 0o666) -> None:
    """Give a file these bytes, all of them or none whatever happens: written beside it, fsynced, renamed.

    Args:
        path: The file.
        data: Its bytes.
        step: Name of the failpoints' common beginning.
        mode: Permissions of a new file, before the process's umask.

    Raises:
        OSError: The disk refuses; the file is as it was.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        with durable_step(step, "write"):
            file.write(data)
            file.flush()
        fsync_file(file.fileno(), step)
    rename(temporary, path, step)
    fsync_folder(path.parent, step)
