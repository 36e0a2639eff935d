"""Images in files, read by number: what an image set has in place of an array that memory would not hold.

Nothing is mapped: a mapped page counts as the process's own memory, and a disk that fails ends a process that touches one.
Reading takes the memory of what is asked for, and fails as an error.

Shape legend: N images, n of them, S image size.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.types import IntArray

ROW_DIGEST_BYTES = 8
PIECE = 256
"""Images that are read at a time where all of them are wanted."""

Pixels = npt.NDArray[np.uint8]
Numbers = Any
"""What chooses among images, as it chooses among an array's rows: a slice, numbers, or booleans."""


def row_digest(row: Pixels) -> bytes:
    """Return the digest of an image's bytes at the run's size."""
    return hashlib.blake2b(np.ascontiguousarray(row).data, digest_size=ROW_DIGEST_BYTES).digest()


class RowFile:
    """A file of images of one size, each at its number. Each is compared with its digest when a process first reads it."""

    def __init__(self, descriptor: int, side: int, on_damage: Callable[[], None]) -> None:
        """Take over an open file.

        Args:
            descriptor: Is closed with this object.
            side: S.
            on_damage: Called when an image is found not to have its digest.
        """
        self.side, self.row_bytes = side, 3 * side * side
        self.is_damaged = False
        self._descriptor, self._on_damage = descriptor, on_damage
        self._digests = np.zeros(0, np.uint64)
        self._is_checked = np.zeros(0, np.bool_)

    def __del__(self) -> None:
        os.close(self._descriptor)

    def write(self, row: int, images_nSS3: Pixels) -> None:
        """Write images at consecutive numbers.

        Raises:
            OSError: The disk refuses.
        """
        left, at = np.ascontiguousarray(images_nSS3).data.cast("B"), row * self.row_bytes
        while left:
            written = os.pwrite(self._descriptor, left, at)
            left, at = left[written:], at + written

    def expect(self, rows: Sequence[int], digests: Sequence[bytes], *, is_checked: bool = False) -> None:
        """Remember the digests of images, which reading compares; those that this process wrote are compared no more."""
        if not rows:
            return
        longer = max(rows) + 1 - len(self._digests)
        if longer > 0:
            longer = max(longer, len(self._digests) // 2)
            self._digests = np.append(self._digests, np.zeros(longer, np.uint64))
            self._is_checked = np.append(self._is_checked, np.zeros(longer, np.bool_))
        self._digests[list(rows)] = np.frombuffer(b"".join(digests), np.uint64)
        self._is_checked[list(rows)] = is_checked

    def read(self, rows_n: IntArray) -> Pixels:
        """Return images, `[n, S, S, 3]`.

        Raises:
            StoreUnavailable: The disk fails, or an image does not have its digest.
        """
        found = np.empty((len(rows_n), self.row_bytes), np.uint8)
        ends = [*np.flatnonzero(np.diff(rows_n) != 1) + 1, len(rows_n)] if len(rows_n) else []
        begin = 0
        for end in ends:  # a run of neighbours is one read
            self._fill(found[begin:end], int(rows_n[begin]))
            begin = end
        new = np.flatnonzero(~self._is_checked[rows_n])
        for place in new.tolist():
            if row_digest(found[place]) != self._digests[rows_n[place]].tobytes():
                self._refuse()
        self._is_checked[rows_n[new]] = True
        return found.reshape(-1, self.side, self.side, 3)

    def _fill(self, rows_nX: Pixels, row: int) -> None:
        left, at = rows_nX.data.cast("B"), row * self.row_bytes
        while left:
            try:
                num_read = os.preadv(self._descriptor, [left], at)
            except OSError as error:
                self._refuse(error)
            if not num_read:
                self._refuse()
            left, at = left[num_read:], at + num_read

    def _refuse(self, error: OSError | None = None) -> NoReturn:
        self.is_damaged = True
        self._on_damage()
        why = "are not as they were written" if error is None else f"cannot be read ({error.strerror})"
        raise StoreUnavailable(
            f"decoded images that this host keeps {why}; they are removed, and decoded again when the task is tried again"
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class StoredImages:
    """Images in files and arrays, in any order. Choosing reads them; `chosen` chooses without reading.

    Attributes:
        pieces: Files, and arrays `[_, S, S, 3]`.
        row_N: Its number there; int64.
        side: S.
    """

    pieces: tuple[RowFile | Pixels, ...]
    piece_N: npt.NDArray[np.uint8]
    row_N: IntArray
    side: int

    def __len__(self) -> int:
        return len(self.row_N)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that an array of all of them would have."""
        return len(self), self.side, self.side, 3

    @property
    def nbytes(self) -> int:
        """Bytes of such an array."""
        return 3 * self.side**2 * len(self)

    @property
    def is_damaged(self) -> bool:
        """Whether an image was found not to be as it was written: they are to be read from the data set again."""
        return any(isinstance(piece, RowFile) and piece.is_damaged for piece in self.pieces)

    def __getitem__(self, numbers: Numbers) -> Pixels:
        """Return images as an array `[n, S, S, 3]`, or `[S, S, 3]` for a single number."""
        rows_n = self.row_N[numbers]
        if np.ndim(rows_n) == 0:
            one: Pixels = self[[numbers]][0]
            return one
        piece_n = self.piece_N[numbers]
        used = np.unique(piece_n).tolist()
        if len(used) == 1:
            return self._of(used[0], rows_n)
        found = np.empty((len(rows_n), *self.shape[1:]), np.uint8)
        for piece in used:
            found[piece_n == piece] = self._of(piece, rows_n[piece_n == piece])
        return found

    def _of(self, number: int, rows_n: IntArray) -> Pixels:
        piece = self.pieces[number]
        return piece.read(rows_n) if isinstance(piece, RowFile) else piece[rows_n]

    def chosen(self, numbers: Numbers) -> StoredImages:
        """Return some of them, without reading any."""
        return StoredImages(self.pieces, self.piece_N[numbers], self.row_N[numbers], self.side)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """Refuse to become one array, which numpy would do without a word."""
        raise TypeError(f"{len(self)} stored images are no array; choose some, or go through them by `pieces_of`")


Images = Pixels | StoredImages
"""Images `[N, S, S, 3]`, uint8: in memory, or in files."""


def chosen(images: Images, numbers: Numbers) -> Images:
    """Return some images: a copy of those in memory, and those in files without reading them."""
    return images.chosen(numbers) if isinstance(images, StoredImages) else images[numbers]


def pieces_of(images: Images) -> Iterator[Pixels]:
    """Yield all images in order, a few at a time."""
    for begin in range(0, len(images), PIECE):
        yield images[begin : begin + PIECE]


def joined_images(parts: Sequence[Images]) -> Images:
    """Return images one after another: an array where all are arrays, else without reading any."""
    if not any(isinstance(part, StoredImages) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    pieces: list[RowFile | Pixels] = []
    piece_parts, rows = [], []
    for part in parts:
        if isinstance(part, StoredImages):
            places = [_placed(pieces, piece) for piece in part.pieces]
            piece_parts.append(np.array(places, np.uint8)[part.piece_N])
            rows.append(part.row_N)
        else:
            piece_parts.append(np.full(len(part), _placed(pieces, part), np.uint8))
            rows.append(np.arange(len(part)))
    return StoredImages(tuple(pieces), np.concatenate(piece_parts), np.concatenate(rows), parts[0].shape[1])


def _placed(pieces: list[RowFile | Pixels], piece: RowFile | Pixels) -> int:
    """Return the place of a piece among others, adding it if it is new."""
    for place, known in enumerate(pieces):
        if known is piece:
            return place
    pieces.append(piece)
    return len(pieces) - 1
