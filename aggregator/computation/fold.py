"""Fold of the cohort's model blobs into the next global model, one block at a time.

Blocks are read from the blobs in client-id order, one client at a time, and passed to the method's `fold`, which works
elementwise. The bytes of the result therefore depend only on the updates, not on their order of arrival, and memory depends
only on the block size, not on the number of clients or the size of the model.

Every blob is checked as it is read (see seals.py), and no result ends before all of them are known to have their SHA-256: a
bit that has flipped since the update was committed is found, and goes into no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from fedplcc.aggregator.computation.reading_ahead import read_ahead
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob, ReadOnce
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.tensors import DTYPES, TensorEntry, TensorTable, laid_out

BLOCK_ELEMENTS = 1 << 18
"""Elements of a block: 1 MiB of float32, beside which opening its file costs little."""


@dataclass(frozen=True, slots=True)
class WeightedModel:
    """A client's model blob, whose file is named by its SHA-256, and its weight in the mean."""

    path: Path
    weight: float


def fold_models(
    table: TensorTable,
    global_model: Path,
    updates: Sequence[WeightedModel],
    method: Method,
    config: MethodConfig,
    block_elements: int = BLOCK_ELEMENTS,
    withheld: Sequence[int] = (),
) -> Iterator[memoryview]:
    """Yield the bytes of the next global model's blob: the unchanged header, then the folded blocks.

    Args:
        table: Layout of the global model; every update has that of `sent_table`, byte for byte (see update_checks.py).
        updates: The cohort's models in client-id order.
        block_elements: Elements read at a time from each blob.
        withheld: Places of the tensors that no update has; they stay as they are in the global model.

    Raises:
        PayloadCorrupt: A stored blob is missing or damaged; of damage, the last bytes of the result alone tell.
    """
    yield memoryview(table.header)
    weights = [update.weight for update in updates]
    state, models = HashedBlob(global_model), [HashedBlob(update.path) for update in updates]

    def places() -> Iterator[tuple[bool, TensorEntry, TensorEntry, int, int]]:
        """Whether a block is withheld, its region in the global model and in an update, and its elements."""
        begin = len(sent_table(table, withheld).header)
        for is_withheld, region in marked_regions(table, frozenset(withheld)):
            sent = replace(region, begin=begin)  # the same elements in an update's file
            if not is_withheld:
                begin += region.end - region.begin
            for first, count in cuts(region, block_elements):
                yield is_withheld, region, sent, first, count

    pieces = (
        (number, sent, first, count)
        for is_withheld, _region, sent, first, count in places()
        if not is_withheld
        for number in range(len(models))
    )
    with closing(read_ahead(models, pieces, table.size_bytes)) as read:
        for is_withheld, region, _sent, first, count in places():
            read_state = ReadOnce(state, region, first, count)
            if is_withheld:
                yield as_bytes(read_state(), region)
                continue
            blocks = islice(read, len(models))
            yield as_bytes(method.fold(read_state, blocks, weights, config), region)
            exhaust(blocks)
    for blob in (state, *models):
        blob.finish()


def exhaust(blocks: Iterator[Block]) -> None:
    """Read the blocks that a method's fold has left: the next cut's are behind them."""
    for _ in blocks:
        pass


def sent_table(table: TensorTable, withheld: Sequence[int]) -> TensorTable:
    """Return the layout of the model in an update: that of the global model without the tensors that clients keep.

    Args:
        withheld: Places of the tensors that no update has.
    """
    if not withheld:
        return table
    places = frozenset(withheld)
    sent = [entry for place, entry in enumerate(table.entries) if place not in places]
    return laid_out({entry.name: (entry.dtype, entry.shape) for entry in sent})


def marked_regions(table: TensorTable, places: Set[int]) -> Iterator[tuple[bool, TensorEntry]]:
    """Yield regions of neighbouring tensors of equal dtype, each with whether all its tensors are at one of the places."""
    for is_marked, run in groupby(range(len(table.entries)), key=lambda place: place in places):
        for region in regions(table.entries[place] for place in run):
            yield is_marked, region


def regions(entries: Iterable[TensorEntry]) -> Iterator[TensorEntry]:
    """Yield neighbouring tensors of equal dtype as one region; the elementwise fold ignores their borders."""
    region: TensorEntry | None = None
    for entry in entries:
        if region is not None and region.dtype == entry.dtype:
            merged = region.num_elements + entry.num_elements
            region = replace(region, shape=(merged,), end=entry.end)
            continue
        if region is not None:
            yield region
        region = entry
    if region is not None:
        yield region


def cuts(region: TensorEntry, block_elements: int) -> Iterator[tuple[int, int]]:
    """Yield the first element and the number of elements of each block of a region."""
    for first in range(0, region.num_elements, block_elements):
        yield first, min(block_elements, region.num_elements - first)


def as_bytes(block: Block, region: TensorEntry) -> memoryview:
    """Return a block's bytes as they stand in the file."""
    return np.ascontiguousarray(block, DTYPES[region.dtype]).data.cast("B")
