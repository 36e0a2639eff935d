"""Blobs that are hashed as they are read, or sealed (see seals.py): the bytes that are used are those that were checked.

A file here is named by its SHA-256. Whether a blob was whole some time ago says nothing of the bytes that are read now: a
disk, or somebody, may have changed them since.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedplcc.aggregator.store.blobs.seals import expecting
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.tensors import DTYPES, Array, TensorEntry

PIECE_BYTES = 1 << 18
"""Bytes read at a time where nobody uses them."""


class HashedBlob:
    """A blob of any size, read from its beginning to its end by one thread at a time.

    What is read is trusted only once `finish` has returned.
    """

    __slots__ = ("_digest", "_path", "_position")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest, self._position = expecting(path.name), 0

    def block(self, region: TensorEntry, first: int, count: int) -> Array:
        """Return elements of a region; each call reads behind what the one before read.

        Raises:
            PayloadCorrupt: The file is missing, or shorter than its header says.
        """
        dtype = DTYPES[region.dtype]
        block = np.empty(count, dtype)
        begin = region.begin + first * dtype.itemsize
        if begin < self._position:
            raise ValueError("a blob that is hashed as it is read is read once, from its beginning to its end")
        # Opened for each block: a thousand clients must not need a thousand descriptors.
        descriptor = self._open()
        try:
            self._skip(descriptor, begin)
            if os.preadv(descriptor, [block.data], begin) != block.nbytes:
                raise PayloadCorrupt("a stored model is shorter than its header says", sha256=self._path.name)
        finally:
            os.close(descriptor)
        self._digest.update(block.view(np.uint8).data)
        self._position += block.nbytes
        return block

    def finish(self) -> None:
        """Read what nobody has asked for, and check the SHA-256 of all of it; a blob of which nothing was read is left.

        Raises:
            PayloadCorrupt: It is not what the file's name says.
        """
        if not self._position:
            return
        descriptor = self._open()
        try:
            self._skip(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        check_sha256(self._path, self._digest.finish())

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _gone(self._path) from None

    def _skip(self, descriptor: int, end: int) -> None:
        """Hash what lies before `end`."""
        while self._position < end:
            piece = os.pread(descriptor, min(PIECE_BYTES, end - self._position), self._position)
            if not piece:
                return
            self._digest.update(piece)
            self._position += len(piece)


class ReadOnce:
    """A block that is read when it is first asked for, and given out as often as it is."""

    def __init__(self, blob: HashedBlob, region: TensorEntry, first: int, count: int) -> None:
        self._blob, self._place = blob, (region, first, count)
        self._block: npt.NDArray[np.generic] | None = None

    def __call__(self) -> Array:
        """Return a copy of the block, since a method may change what it gets."""
        if self._block is None:
            self._block = self._blob.block(*self._place)
        return self._block.copy()


def whole_bytes(path: Path) -> bytes:
    """Return the bytes of a small blob, which have its SHA-256.

    Raises:
        PayloadCorrupt: The file is missing or damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _gone(path) from None
    check_sha256(path, hashlib.sha256(data).hexdigest())
    return data


def check_sha256(path: Path, found: str) -> None:
    """Check the SHA-256 that was found against the one that a blob's file is named by.

    Raises:
        PayloadCorrupt: They differ.
    """
    if found != path.name:
        raise PayloadCorrupt(
            "a stored blob does not have its SHA-256; the disk or somebody damaged it", sha256=path.name
        )


def _gone(path: Path) -> PayloadCorrupt:
    return PayloadCorrupt(
        f"the stored blob {path.name[:12]} is gone; somebody changed the state directory", sha256=path.name
    )
