"""What durable files need of the operating system."""

from __future__ import annotations

import os
from pathlib import Path


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
