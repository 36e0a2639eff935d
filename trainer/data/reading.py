"""Reading of images at a run's size: into memory where a client's images are few, else into the host's store.

Pictures in files are decoded by several threads. Where the images lie, and how many threads read them, changes no byte.

Shape legend: N images, S image size.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import IntArray
from fedplcc.trainer.cancellation import ShouldStop, check, never
from fedplcc.trainer.data.images.colours import remarks_on_pictures
from fedplcc.trainer.data.images.store import ImageStore, StoredSet, told
from fedplcc.trainer.data.images.stored import Images, Pixels, RowFile, StoredImages, chosen, row_digest
from fedplcc.trainer.data.record import Mark, digest_of
from fedplcc.trainer.data.source import Samples, fit_image

log = get_logger("fedplcc.trainer.data.reading")

AT_ONCE = 64
"""Images that are read between two looks at who waits: 10 MB of 224 pixels."""
MAX_THREADS = 8
TOLD_EVERY_S, LOGGED_EVERY_S = 1.0, 10.0
"""Times between two calls of `on_share`, and between two lines of the log."""

Selection = tuple[IntArray, int]
"""Candidate images, to be tried in order, and the number of images to take of them."""
OnShare = Callable[[float], None]
"""Called with the fraction of the images that is read, where that takes a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How images are read for a run.

    Attributes:
        store: Where images lie that memory is not to hold; None for memory alone.
        share: Share of the store's `in_memory_bytes` that may be taken.
    """

    store: ImageStore | None = None
    should_stop: ShouldStop = never
    on_share: OnShare = lambda done: None
    share: float = 1.0

    def part(self, number: int, num_parts: int) -> Reader:
        """Return the reader of one of several parts of all images, from 0."""
        on_share = self.on_share
        return replace(self, on_share=lambda done: on_share((number + done) / num_parts), share=self.share / num_parts)


IN_MEMORY = Reader()


class Read(NamedTuple):
    """Images that were read, in the source's order."""

    images: Images
    numbers_N: IntArray
    marks: tuple[Mark, ...]
    unreadable: list[str]


def read_sides(
    sides: Sequence[tuple[Samples, Sequence[Selection]]], image_size: int, reader: Reader = IN_MEMORY
) -> list[Read]:
    """Read the images to use of several sides of a data set.

    Raises:
        InvalidData: They fit neither into memory nor on the store's disk.
        DiskFull, StoreUnavailable: The store cannot be written.
        Cancelled: `reader.should_stop()` held.
    """
    counts = [sum(wanted for _, wanted in selections) for _, selections in sides]
    places = list[_Memory | _Files]()
    if reader.store is None or sum(counts) * 3 * image_size**2 <= reader.share * reader.store.in_memory_bytes:
        places += [_Memory(count, image_size) for count in counts]
    else:
        kept = reader.store.begin(image_size)
        files = [_Files(kept, samples, selections) for samples, selections in sides]
        kept.make_room([key for of_side in files for key in of_side.keys.values()])
        places += files
    progress = _Progress(reader, sum(counts))
    return [_read(*side, place, image_size, progress) for side, place in zip(sides, places, strict=True)]


def _read(
    samples: Samples, selections: Sequence[Selection], place: _Memory | _Files, image_size: int, progress: _Progress
) -> Read:
    numbers: list[int] = []
    marks: list[Mark] = []
    unreadable: list[str] = []
    with _decoding(samples, image_size) as decode:
        for candidates, wanted in selections:
            enough, left = len(numbers) + wanted, iter(candidates.tolist())
            # No image is tried that is not needed: those of a subset that is complete are never opened.
            while some := list(islice(left, min(AT_ONCE, enough - len(numbers)))):
                for i, digest in zip(some, place.take(some, decode), strict=True):
                    if digest is None:
                        unreadable.append(samples.name(i))
                    else:
                        numbers.append(i)
                        marks.append((samples.name(i), digest))
                progress.done(len(some))
    numbers_N = np.array(numbers, dtype=np.int64)
    images: Images = place.images()
    if np.any(numbers_N[1:] < numbers_N[:-1]):
        order_N = numbers_N.argsort()
        images = chosen(images, order_N)  # copies images in memory; a whole set is in order already
        numbers_N, marks = numbers_N[order_N], [marks[i] for i in order_N.tolist()]
    return Read(images, numbers_N, tuple(marks), unreadable)


_Decoded = tuple[Pixels, str]
"""An image at the run's size, and the digest of the picture."""
_Decode = Callable[[Sequence[int]], Iterable[_Decoded | None]]


@contextmanager
def _decoding(samples: Samples, image_size: int) -> Iterator[_Decode]:
    """Return what decodes images of these numbers, in their order; None for one that cannot be read."""
    remarks = Counter[str]()

    def decoded(i: int) -> _Decoded | None:
        with remarks_on_pictures() as said:
            pixels = samples.read(i)
        remarks.update(said)
        return None if pixels is None else (fit_image(pixels, image_size), digest_of(pixels))

    num_threads = min(MAX_THREADS, len(os.sched_getaffinity(0))) if samples.identity is not None else 1
    if num_threads == 1:
        yield lambda numbers: map(decoded, numbers)
    else:
        with ThreadPoolExecutor(num_threads, thread_name_prefix="decode") as threads:
            yield lambda numbers: threads.map(decoded, numbers)
    for remark, count in remarks.items():
        log.warning("pictures_remark", count=count, remark=remark)


class _Memory:
    """Images in one array."""

    def __init__(self, num_images: int, image_size: int) -> None:
        self._images_NSS3, self._num_taken = allocated(num_images, image_size), 0

    def take(self, numbers: Sequence[int], decode: _Decode) -> Iterator[str | None]:
        """Decode images, and yield the digest of each picture; None for one that cannot be read."""
        for found in decode(numbers):
            if found is not None:
                self._images_NSS3[self._num_taken] = found[0]
                self._num_taken += 1
            yield None if found is None else found[1]

    def images(self) -> Pixels:
        """Return those that were taken, in their order."""
        return self._images_NSS3[: self._num_taken]


class _Files:
    """Images in the host's store, and those that nobody finds again in a file without a name."""

    def __init__(self, kept: StoredSet, samples: Samples, selections: Sequence[Selection]) -> None:
        self._kept, self._identity = kept, samples.identity or (lambda i: None)
        wanted = (i for candidates, count in selections for i in candidates[:count].tolist())
        self.keys: dict[int, bytes | None] = {i: self._identity(i) for i in wanted}
        """The keys of the images that are probably used."""
        self._pieces, self._rows = array("B"), array("q")
        self._scratch: RowFile | None = None
        self._num_in_scratch = 0

    def take(self, numbers: Sequence[int], decode: _Decode) -> Iterator[str | None]:
        """Find or decode images; see `_Memory.take`."""
        keys = {i: self.keys.get(i) or self._identity(i) for i in numbers}
        known = dict(zip(numbers, self._kept.found(list(keys.values())), strict=True))
        new = [i for i in numbers if known[i] is None]
        decoded = dict(zip(new, decode(new), strict=True))
        added = self._added(keys, decoded)
        for i in numbers:
            kept, found = known[i], decoded.get(i)
            if kept is not None:
                self._put(0, kept.row)
                yield kept.mark
            elif found is not None:
                self._put(*((0, added[i]) if i in added else (1, self._written_to_scratch(found[0]))))
                yield found[1]
            else:
                yield None

    def _added(self, keys: Mapping[int, bytes | None], decoded: Mapping[int, _Decoded | None]) -> dict[int, int]:
        """Keep images in the store whose files have not changed since before they were read; returns their rows there."""
        whole = [
            (i, key, found)
            for i, found in decoded.items()
            if found is not None and (key := keys[i]) is not None and self._identity(i) == key
        ]
        if not whole:
            return {}
        rows = self._kept.add([key for _, key, _ in whole], [f[1] for *_, f in whole], [f[0] for *_, f in whole])
        return dict(zip((i for i, _, _ in whole), rows, strict=True))

    def _written_to_scratch(self, image_SS3: Pixels) -> int:
        if self._scratch is None:
            self._scratch = self._kept.scratch()
        row = self._num_in_scratch
        with told():
            self._scratch.write(row, image_SS3)
        self._scratch.expect([row], [row_digest(image_SS3)], is_checked=True)
        self._num_in_scratch += 1
        return row

    def _put(self, piece: int, row: int) -> None:
        self._pieces.append(piece)
        self._rows.append(row)

    def images(self) -> StoredImages:
        """Return those that were taken, in their order."""
        pieces = (self._kept.file,) if self._scratch is None else (self._kept.file, self._scratch)
        piece_N, row_N = np.array(self._pieces, np.uint8), np.array(self._rows, np.int64)
        return StoredImages(pieces, piece_N, row_N, self._kept.side)


def allocated(num_images: int, image_size: int) -> Pixels:
    """Return an array for images.

    Raises:
        InvalidData: There is not so much memory.
    """
    shape = (num_images, image_size, image_size, 3)
    try:
        return np.empty(shape, np.uint8)
    except MemoryError as error:
        raise InvalidData(
            f"{num_images} images of {image_size} x {image_size} need {np.prod(shape, dtype=float) / 2**30:.0f} GiB of "
            "memory, more than there is; take fewer with samples_per_class or fraction, or a smaller data.image_size"
        ) from error


class _Progress:
    """What is told while images are read."""

    def __init__(self, reader: Reader, total: int) -> None:
        self._reader, self._total, self._num_done = reader, max(1, total), 0
        self._told_at = self._logged_at = time.monotonic()

    def done(self, count: int) -> None:
        """Tell of images that were tried.

        Raises:
            Cancelled: Nobody waits for them any more.
        """
        check(self._reader.should_stop)
        self._num_done += count
        now = time.monotonic()
        if now >= self._told_at + TOLD_EVERY_S:
            self._told_at = now
            self._reader.on_share(min(1.0, self._num_done / self._total))
        if now >= self._logged_at + LOGGED_EVERY_S:
            self._logged_at = now
            log.info("reading_images", num_read=self._num_done, num_images=self._total)
