"""Read-only access to the files of stored blobs: paths, checks of SHA-256, listing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedplcc.aggregator.store.blobs.hashed_reading import PIECE_BYTES, check_sha256, whole_bytes
from fedplcc.aggregator.store.blobs.seals import Sealing
from fedplcc.shared.errors import BlobNotFound, PayloadCorrupt

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobFiles:
    """Blobs below `blobs/` of a state directory, each named by its SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = folder / "blobs"

    def path(self, sha256: str) -> Path:
        """Return the path of a blob, which may be missing."""
        return self._blobs / sha256[:2] / sha256

    def stored_path(self, sha256: str) -> Path:
        """Return the file of a blob that a row names.

        Raises:
            PayloadCorrupt: The file is missing.
        """
        path = self.path(sha256)
        if not path.is_file():
            raise PayloadCorrupt(
                f"the stored blob {sha256[:12]} is gone; somebody changed the state directory", sha256=sha256
            )
        return path

    def verified_path(self, sha256: str) -> Path:
        """Return the file of a blob that a row names, after checking its SHA-256.

        Raises:
            PayloadCorrupt: The file is missing or damaged.
        """
        path = self.stored_path(sha256)
        check_whole(path)
        return path

    def open(self, sha256: str) -> BinaryIO:
        """Open a blob for reading.

        Raises:
            BlobNotFound: There is no such blob.
        """
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise BlobNotFound("the blob is not stored", sha256=sha256) from None

    def read(self, sha256: str) -> bytes:
        """Return the bytes of a small blob, checked as they are read.

        Raises:
            PayloadCorrupt: The file is missing or damaged.
        """
        return whole_bytes(self.path(sha256))

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield name and size in bytes of every blob on the disk, sorted; blobs may come and go meanwhile."""
        for folder in sorted(self._blobs.iterdir()) if self._blobs.is_dir() else ():
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if _NAME.fullmatch(path.name):
                    try:
                        yield path.name, path.stat().st_size
                    except FileNotFoundError:
                        continue


def check_whole(path: Path) -> None:
    """Check that a blob has the SHA-256 that its file is named by.

    Raises:
        PayloadCorrupt: It has another.
    """
    check_sha256(path, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = Sealing()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.finish()
