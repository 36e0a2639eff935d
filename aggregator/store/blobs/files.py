"""The files of stored blobs, to be read: where they are, and whether they are what their names say. Changes nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shared.errors import BlobNotFound, PayloadCorrupt

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobFiles:
    """Blobs below `blobs/` of a state directory, each named by its SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = folder / "blobs"

    def path(self, sha256: str) -> Path:
        """Where a blob is, or would be."""
        return self._blobs / sha256[:2] / sha256

    def stored_path(self, sha256: str) -> Path:
        """The file of a blob that a row names.

        Raises:
            PayloadCorrupt: It is gone.
        """
        path = self.path(sha256)
        if not path.is_file():
            raise PayloadCorrupt(
                f"the stored blob {sha256[:12]} is gone; somebody changed the state directory", sha256=sha256
            )
        return path

    def verified_path(self, sha256: str) -> Path:
        """The file of a blob that a row names, read once and found to be what its name says.

        Raises:
            PayloadCorrupt: It is gone, or damaged.
        """
        path = self.stored_path(sha256)
        if sha256_of(path) != sha256:
            raise PayloadCorrupt(
                "a stored blob does not have its SHA-256; the disk or somebody damaged it", sha256=sha256
            )
        return path

    def open(self, sha256: str) -> BinaryIO:
        """Open a blob for reading.

        Raises:
            BlobNotFound: There is none of this name.
        """
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise BlobNotFound("the blob is not stored", sha256=sha256) from None

    def read(self, sha256: str) -> bytes:
        """A whole blob; for small ones."""
        with self.open(sha256) as file:
            return file.read()

    def files(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of every blob on the disk, whether a row names it or not, by folder; others come and go."""
        for folder in sorted(self._blobs.iterdir()):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if _NAME.fullmatch(path.name):
                    try:
                        yield path.name, path.stat().st_size
                    except FileNotFoundError:
                        continue


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
