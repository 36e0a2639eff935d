"""A host's store of decoded images: pixels at a run's size, decoded once, for all runs and trainers of the host.

    SIZE-HEX.pixels   images of one size, each at its number; HEX stands for the versions of the decoders
    SIZE-HEX.index    a record for each: what decides its pixels, the digest of the picture, its own digest

Only sets that would take more than `IN_MEMORY_BYTES` of memory are kept here. An image is found again by its file's path,
size and times, and by how it is read. Pixels are written first and their record after them, at the end of both files, by one
process at a time: a kill loses at most the images of one piece. A power cut may leave a record without its pixels; whoever
reads compares digests. Files only grow, and room is made by removing whole ones: who reads one keeps it until it is closed.

Shape legend: n images, S image size.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL
from PIL import features

from fedplcc.shared.errors import DiskFull, InvalidData, StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.resources import remedy_for
from fedplcc.trainer.data.images.stored import ROW_DIGEST_BYTES, Pixels, RowFile, row_digest

log = get_logger("fedplcc.trainer.data.images.store")

IMAGES = "images"
"""Folder of decoded images of this host, beside its weights."""
IN_MEMORY_BYTES = 1 << 30
"""Largest images of a client at the run's size that are held in memory, as one array of each side."""
MAX_BYTES = 64 << 30
"""Bytes that the store keeps beyond those that the latest set needs."""
FREE_BYTES = 1 << 30
"""Room on the disk that is left to others."""
KEY_BYTES, MARK_BYTES, CHECK_BYTES = 32, 16, 8
RECORD_BYTES = KEY_BYTES + MARK_BYTES + ROW_DIGEST_BYTES + CHECK_BYTES
FORMAT = 4
"""Number of the way in which pixels are read; another one leaves older files of decoded images alone. Whoever changes
the pixels of a readable file raises it."""
LOCK = "lock"


class Kept(NamedTuple):
    """An image in the store: its number, and the digest of the picture that it was made of."""

    row: int
    mark: str


class ImageStore:
    """Decoded images in a folder. Any number of processes may use it."""

    def __init__(self, folder: Path, *, in_memory_bytes: int = IN_MEMORY_BYTES, max_bytes: int = MAX_BYTES) -> None:
        """Name the folder; it is made when the first set is kept."""
        self.folder, self.in_memory_bytes, self._max_bytes = folder, in_memory_bytes, max_bytes

    def begin(self, side: int) -> StoredSet:
        """Begin a set of images of one size.

        Raises:
            StoreUnavailable: The folder cannot be used.
        """
        with told():
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
        return StoredSet(self, f"{side}-{_decoders()}", side)

    def opened(self, name: str) -> tuple[int, int]:
        """Open the two files of one size, pixels and index, and return their descriptors."""
        with self.locked():
            index = os.open(self.folder / f"{name}.index", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                return os.open(self.folder / f"{name}.pixels", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), index
            except OSError:
                os.close(index)
                raise

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process change the folder within the block."""
        with (self.folder / LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def remove(self, name: str) -> None:
        """Remove the files of one size within `locked`: the index first, without which pixels are nothing."""
        for ending in (".index", ".pixels"):
            (self.folder / f"{name}{ending}").unlink(missing_ok=True)

    def remove_damaged(self, name: str, index_inode: int) -> None:
        """Remove the files of one size, unless another process has begun them anew."""
        log.error("stored_images_damaged", file=f"{name}.pixels")
        with suppress(OSError), self.locked():
            if (self.folder / f"{name}.index").stat().st_ino == index_inode:
                self.remove(name)

    def make_room(self, name: str, num_rows: int, num_new: int, row_bytes: int) -> bool:
        """See that new images fit, within `locked`: files of other sizes go, the oldest first, at last those of this one.

        Returns:
            Whether the files of this size are still there; without them all images are new.

        Raises:
            InvalidData: They do not fit.
        """
        new, most = num_new * row_bytes, max(self._max_bytes, 2 * num_rows * row_bytes)

        def fits() -> bool:
            return self._free() >= new + FREE_BYTES and sum(map(self._bytes_of, [name, *others])) + new <= most

        others = self._others(name)
        for other in others:
            if fits():
                break
            self.remove(other)
        is_there = fits() or self._bytes_of(name) <= (num_rows - num_new) * row_bytes
        if not is_there:  # images that have gone or changed lie there, or those of other data
            self.remove(name)
            new = num_rows * row_bytes
        if (free := self._free()) < new + FREE_BYTES:
            raise InvalidData(
                f"{num_rows} images of this size need {_gib(new)} more of the disk with the backbones and decoded images of "
                f"this host, of which {_gib(free)} are free and {_gib(FREE_BYTES)} are left to others; make room, or take "
                "fewer images with samples_per_class or fraction, or a smaller data.image_size"
            )
        return is_there

    def _free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def _bytes_of(self, name: str) -> int:
        path = self.folder / f"{name}.pixels"
        return path.stat().st_size if path.exists() else 0

    def _others(self, name: str) -> list[str]:
        """Return the names of the files of other sizes and decoders, the one that was written to last at the end."""
        found = sorted(self.folder.glob("*.pixels"), key=lambda path: path.stat().st_mtime)
        return [path.stem for path in found if path.stem != name]


class StoredSet:
    """The images of one size, as one process finds them and adds to them."""

    def __init__(self, store: ImageStore, name: str, side: int) -> None:
        """Open the files, and make them if they are not there.

        Raises:
            StoreUnavailable: They cannot be opened.
        """
        self._store, self._name, self.side = store, name, side
        self._index = -1
        self._open()

    def _open(self) -> None:
        with told():
            pixels, index = self._store.opened(self._name)
        self._close()
        inode, store, name = os.fstat(index).st_ino, self._store, self._name
        self.file = RowFile(pixels, self.side, lambda: store.remove_damaged(name, inode))
        self._index, self._records, self._known = index, bytearray(), dict[bytes, int]()
        self._refresh()

    def _close(self) -> None:
        if self._index >= 0:
            os.close(self._index)

    def __del__(self) -> None:
        self._close()

    def make_room(self, keys: Sequence[bytes | None]) -> None:
        """See that images of these keys fit; of those without one nobody finds any again.

        Raises:
            InvalidData: They do not.
            StoreUnavailable: The folder cannot be used.
        """
        num_new = sum(key not in self._known for key in keys)
        if not num_new:
            return
        with told(), self._store.locked():
            is_there = self._store.make_room(self._name, len(keys), num_new, self.file.row_bytes)
        if not is_there:
            self._open()

    def found(self, keys: Sequence[bytes | None]) -> list[Kept | None]:
        """Return where images are; None for those that are not kept."""
        kept: list[Kept | None] = []
        rows, digests = list[int](), list[bytes]()
        for key in keys:
            row = None if key is None else self._known.get(key)
            record = b"" if row is None else bytes(self._records[row * RECORD_BYTES : (row + 1) * RECORD_BYTES])
            if row is None or record[-CHECK_BYTES:] != _check(record[:-CHECK_BYTES]):  # a power cut may leave others
                kept.append(None)
                continue
            kept.append(Kept(row, record[KEY_BYTES : KEY_BYTES + MARK_BYTES].hex()))
            rows.append(row)
            digests.append(record[KEY_BYTES + MARK_BYTES : -CHECK_BYTES])
        self.file.expect(rows, digests)
        return kept

    def add(self, keys: Sequence[bytes], marks: Sequence[str], images: Sequence[Pixels]) -> list[int]:
        """Keep images, and return their numbers; of those that another process kept meanwhile the ones that it gave.

        Raises:
            StoreUnavailable: The disk refuses.
        """
        with told(), self._store.locked():
            self._refresh()
            new = [place for place, kept in enumerate(self.found(keys)) if kept is None]
            if new:
                begin, digests = len(self._records) // RECORD_BYTES, [row_digest(images[place]) for place in new]
                self.file.write(begin, np.stack([images[place] for place in new]))
                records = bytearray()
                for place, digest in zip(new, digests, strict=True):
                    record = keys[place] + bytes.fromhex(marks[place]) + digest
                    records += record + _check(record)
                os.pwrite(self._index, records, begin * RECORD_BYTES)
                self._refresh()
                self.file.expect(range(begin, begin + len(new)), digests, is_checked=True)
        return [self._known[key] for key in keys]

    def scratch(self) -> RowFile:
        """Return a file without a name, for images that nobody finds again; it goes when this process closes it.

        Raises:
            StoreUnavailable: It cannot be made.
        """
        with told(), tempfile.TemporaryFile(dir=self._store.folder) as file:
            return RowFile(os.dup(file.fileno()), self.side, lambda: None)

    def _refresh(self) -> None:
        """Read the records that have come."""
        begin = len(self._records)
        end = os.fstat(self._index).st_size // RECORD_BYTES * RECORD_BYTES
        self._records += os.pread(self._index, max(0, end - begin), begin)
        for at in range(begin, len(self._records), RECORD_BYTES):
            self._known[bytes(self._records[at : at + KEY_BYTES])] = at // RECORD_BYTES


def image_key(*facts: object) -> bytes:
    """Return the key of an image by all that decides its pixels at a size: its file's path and state, how it is read."""
    return hashlib.blake2b(repr(facts).encode(), digest_size=KEY_BYTES).digest()


@contextmanager
def told() -> Iterator[None]:
    """Within the block, turn errors of the disk into a sentence without a path."""
    try:
        yield
    except OSError as error:
        kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
        raise kind(
            f"decoded images cannot be kept in the folder images beside the backbones of this host: "
            f"{error.strerror or type(error).__name__}{remedy_for(error)}"
        ) from error


def _check(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=CHECK_BYTES).digest()


@cache
def _decoders() -> str:
    """Return a digest of the versions that decide pixels."""
    try:
        dicom = version("pydicom")
    except PackageNotFoundError:
        dicom = ""
    return image_key(FORMAT, PIL.__version__, *map(features.version, ("jpg", "littlecms2")), dicom).hex()[:16]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"
