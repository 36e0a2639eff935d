"""A reserve of the disk: a file that only takes room, and gives it back to the database when the disk is full.

Where it has been given back, uploads and results wait until there is room for the reserve again. What a person asks for
(stop, quarantine) and what a start writes still find room.
"""

from __future__ import annotations

import os
from pathlib import Path

from fedplcc.aggregator.store.blobs.disk_errors import full_disk
from fedplcc.aggregator.store.blobs.uploads import Uploads
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger

log = get_logger(__name__)

RESERVE_FILE = "reserve"
"""Name of the reserve's file in the state directory."""
LEAST_BYTES, MOST_BYTES = 512 << 10, 32 << 20
PART = 64
"""Between these the reserve is this part of the disk."""


class Reserve:
    """The reserve of a state directory."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path = folder, folder / RESERVE_FILE
        self.is_released = False
        """Whether it was given back, and uploads and results wait."""

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes when it is whole.

        Raises:
            OSError: The disk cannot be asked.
        """
        found = os.statvfs(self._folder)
        return max(LEAST_BYTES, min(MOST_BYTES, found.f_blocks * found.f_frsize // PART))

    @property
    def is_held(self) -> bool:
        """Whether the file takes its whole room."""
        try:
            return self._path.stat().st_blocks * 512 >= self.size_bytes
        except FileNotFoundError:
            return False

    @property
    def free_bytes(self) -> int:
        """Free space on the disk.

        Raises:
            OSError: The disk cannot be asked.
        """
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    @property
    def is_low(self) -> bool:
        """Whether the disk is so full that the reserve is needed."""
        return self.free_bytes < self.size_bytes // 2

    @property
    def is_short(self) -> bool:
        """Whether there is less room than is left once the reserve is taken."""
        return self.free_bytes < self.size_bytes * (3 if self.is_released else 2)

    def release(self) -> None:
        """Give the room back."""
        if not self.is_released:
            log.error("disk_is_full", detail="uploads and results wait; the reserve is used for what people ask for")
        self.is_released = True
        disk.remove(self._path, "reserve")

    def take(self) -> None:
        """Take the room, where there is enough; uploads and results go on."""
        if not self.is_held:
            disk.allocate(self._path, self.size_bytes, "reserve")
        if self.is_released:
            log.info("disk_has_room_again")
        self.is_released = False

    def check(self) -> None:
        """Check that there is room for more than what people ask for.

        Raises:
            StoreUnavailable: The reserve was given back.
        """
        if self.is_released:
            raise full_disk()


def make_room_to_start(folder: Path) -> None:
    """Give the reserve back before a start on a full disk, and remove uploads if that is not enough.

    Raises:
        OSError: The disk refuses.
    """
    reserve = Reserve(folder)
    if not reserve.is_low:
        return
    reserve.release()
    uploads = Uploads(folder, on_whole=lambda _sha256: None)
    holders = uploads.holders() if uploads.folder.is_dir() else {}
    for client_id in sorted(holders, key=lambda client_id: (-holders[client_id], client_id)):
        if not reserve.is_low:
            return
        log.warning("uploads_dropped", client_id=client_id, bytes=uploads.drop(client_id))
