"""Fold of the cohort's model blobs into the next global model, one block at a time.

Blocks are read from the blobs in client-id order, one client at a time, and passed to the method's `fold`, which works
elementwise. The bytes of the result therefore depend only on the updates, not on their order of arrival, and memory depends
only on the block size, not on the number of clients or the size of the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from shared.errors import PayloadCorrupt
from shared.methods.base import Block, Method, MethodConfig
from shared.tensors import DTYPES, TensorEntry, TensorTable, laid_out

BLOCK_ELEMENTS = 1 << 18
"""Elements of a block: 1 MiB of float32, beside which opening its file costs little."""


@dataclass(frozen=True, slots=True)
class WeightedModel:
    """A client's model blob and its weight in the mean."""

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
        global_model: The model that the round started from.
        updates: The cohort's models in client-id order.
        method: Method whose fold is applied.
        config: Its hyper-parameters.
        block_elements: Elements read at a time from each blob.
        withheld: Places of the tensors that no update has; they stay as they are in the global model.

    Raises:
        PayloadCorrupt: A stored blob is missing, or shorter than its header says.
    """
    yield memoryview(table.header)
    weights = [update.weight for update in updates]
    begin = len(sent_table(table, withheld).header)
    for is_withheld, region in marked_regions(table, frozenset(withheld)):
        sent = replace(region, begin=begin)  # the same elements in an update's file
        if not is_withheld:
            begin += region.end - region.begin
        for first, count in cuts(region, block_elements):
            read_state = partial(read_block, global_model, region, first, count)
            if is_withheld:
                yield as_bytes(read_state(), region)
                continue
            blocks = (read_block(update.path, sent, first, count) for update in updates)
            yield as_bytes(method.fold(read_state, blocks, weights, config), region)


def sent_table(table: TensorTable, withheld: Sequence[int]) -> TensorTable:
    """Return the layout of the model in an update: that of the global model without the tensors that clients keep.

    Args:
        table: Layout of the global model.
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


def read_block(path: Path, region: TensorEntry, first: int, count: int) -> Block:
    """Return elements of a region, read from a file.

    Raises:
        PayloadCorrupt: The file is missing, or shorter than its header says.
    """
    dtype = DTYPES[region.dtype]
    block = np.empty(count, dtype)
    try:
        # Opened for each block: a thousand clients must not need a thousand descriptors.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise PayloadCorrupt("a stored model is gone", sha256=path.name) from None
    try:
        num_bytes = os.preadv(descriptor, [block.data], region.begin + first * dtype.itemsize)
    finally:
        os.close(descriptor)
    if num_bytes != block.nbytes:
        raise PayloadCorrupt("a stored model is shorter than its header says", sha256=path.name)
    return block
