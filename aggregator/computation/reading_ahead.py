"""Blocks of many blobs, read and checked by another thread while the blocks before are folded."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.shared.tensors import Array, TensorEntry

AHEAD = 2
"""Blocks that wait to be folded."""
LEAST_BYTES = 1 << 20
"""A smaller model is read where it is folded: to hand it over costs more than to read it."""


Piece: TypeAlias = tuple[int, TensorEntry, int, int]
"""A block: its blob's place among those that are read, a region of the file, and the elements of it."""


def read_ahead(blobs: list[HashedBlob], pieces: Iterable[Piece], size_bytes: int) -> Generator[Array]:
    """Yield the blocks in their order, which is ascending in each file.

    Raises:
        PayloadCorrupt: A blob is missing, or shorter than its header says.
    """
    if size_bytes < LEAST_BYTES:
        for number, region, first, count in pieces:
            yield blobs[number].block(region, first, count)
        return
    with ThreadPoolExecutor(1, "fold-reader") as reader:
        waiting: deque[Future[Array]] = deque()
        for number, region, first, count in pieces:
            waiting.append(reader.submit(blobs[number].block, region, first, count))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
