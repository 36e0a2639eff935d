"""What durable files need of the operating system, and what to say when it refuses."""

from __future__ import annotations

import os
from pathlib import Path


def why_unusable(folder: Path, error: OSError) -> str:
    """The sentence for a folder that a process cannot use, with what to do where that is known."""
    sentence = f"cannot use the state directory {folder}: {error.strerror or error}"
    if isinstance(error, PermissionError):
        # In a container this is a mounted folder of the host: its owner counts by number.
        sentence += f"; make it writable for user id {os.geteuid()}, or choose another with --state-dir"
    return sentence


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a file that was renamed or linked is there after a power cut only then.

    Raises:
        OSError: The folder cannot be opened, or the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
