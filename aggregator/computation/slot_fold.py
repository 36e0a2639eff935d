"""Fold of the cohort's models together with the server's slots: one pass over the updates, several blobs at once.

A slot's file holds the trainable parameters alone, in the order of the model's file. The model is cut into regions that are
trained and regions that are not: the fold of the method's slots makes the first, the method's own the others. As with
the plain fold, memory depends only on the block size, and the bytes on nothing but the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from fedplcc.aggregator.computation.fold import WeightedModel, as_bytes, cuts, exhaust, marked_regions
from fedplcc.aggregator.computation.reading_ahead import Piece, read_ahead
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.slots import FoldedBlock, ServerSlots, ServerView
from fedplcc.shared.tensors import TensorEntry, TensorTable, laid_out
from fedplcc.shared.types import MODEL, START


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInputs:
    """Inputs of a fold with slots beside the updates.

    Attributes:
        table: Layout of the global model; every update has the same.
        parameters: Places of the trainable tensors in that layout, ascending.
        start: The model that clients started the round from.
        slots: File of each slot as the round before left it, by name; a slot without a file is its first value.
    """

    table: TensorTable
    parameters: Sequence[int]
    start: Path
    slots: Mapping[str, Path]
    view: ServerView


def slot_table(table: TensorTable, parameters: Sequence[int]) -> TensorTable:
    """Return the layout of a slot: the trainable tensors of a model with this layout."""
    trained = [table.entries[place] for place in parameters]
    return laid_out({entry.name: (entry.dtype, entry.shape) for entry in trained})


def fold_with_slots(
    inputs: SlotInputs,
    updates: Sequence[WeightedModel],
    method: Method,
    config: MethodConfig,
    block_elements: int,
) -> Iterator[Mapping[str, bytes | memoryview]]:
    """Yield the next bytes of each blob by its name: `MODEL`, `START` where there is one, and the method's slots.

    Args:
        inputs: Layout, model, slots and facts.
        updates: The cohort's models in client-id order.
        block_elements: Elements read at a time from each file.

    Raises:
        PayloadCorrupt: A stored blob is missing or damaged; of damage, the last bytes of the result alone tell.
    """
    table, weights = inputs.table, [update.weight for update in updates]
    part = method.part(ServerSlots)
    assert part is not None
    models = (MODEL, START) if part.has_start(config) else (MODEL,)
    slots, first_values = slot_table(table, inputs.parameters), part.first_values(config)
    yield {**dict.fromkeys(models, table.header), **dict.fromkeys(first_values, slots.header)}
    stored = [name for name in first_values if name in inputs.slots]
    paths = [inputs.start, *(inputs.slots[name] for name in stored), *(update.path for update in updates)]
    blobs = [HashedBlob(path) for path in paths]

    def places() -> Iterator[tuple[bool, TensorEntry, TensorEntry, int, int]]:
        """Whether a block is trained, its region in a model and in a slot, and its elements."""
        begin = len(slots.header)
        for is_trained, region in marked_regions(table, frozenset(inputs.parameters)):
            kept = replace(region, begin=begin)  # the same elements in a slot's file
            if is_trained:
                begin += region.end - region.begin
            for first, count in cuts(region, block_elements):
                yield is_trained, region, kept, first, count

    def pieces() -> Iterator[Piece]:
        for is_trained, region, kept, first, count in places():
            for number in range(len(blobs)):
                is_slot = 0 < number <= len(stored)
                if is_trained or not is_slot:
                    yield number, kept if is_slot else region, first, count

    with closing(read_ahead(blobs, pieces(), table.size_bytes)) as read:
        for is_trained, region, _kept, _first, count in places():
            start = next(read)
            before = dict(zip(stored, islice(read, len(stored)), strict=True)) if is_trained else {}
            blocks = islice(read, len(updates))
            if is_trained:
                for name, value in first_values.items():
                    if name not in before:
                        before[name] = np.full(count, value, np.float32)
                folded = part.fold(start, blocks, weights, before, inputs.view, config)
                made = {name: as_bytes(block, region) for name, block in _made(folded, models, first_values).items()}
            else:
                block = method.fold(start.copy, blocks, weights, config)
                made = dict.fromkeys(models, as_bytes(block, region))
            yield dict(made)
            exhaust(blocks)
    for blob in blobs:
        blob.finish()


def _made(folded: FoldedBlock, models: Sequence[str], names: Mapping[str, float]) -> dict[str, Block]:
    made = {MODEL: folded.result, **{name: folded.slots[name] for name in names}}
    if START in models:
        assert folded.start is not None, "a method with has_start gives a start block"
        made[START] = folded.start
    return made
