"""Fold of the cohort's models together with the server's slots: one pass over the updates, several blobs at once.

A slot's file holds the trainable parameters alone, in the order of the model's file. The model is cut into regions that are
trained and regions that are not: the method's `slot_fold` makes the first, its `fold` the others. As with the plain fold,
memory depends only on the block size, and the bytes on nothing but the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from aggregator.computation.fold import WeightedModel, as_bytes, cuts, marked_regions, read_block
from shared.methods.base import Block, Method, MethodConfig
from shared.methods.slots import FoldedBlock, ServerView
from shared.tensors import TensorEntry, TensorTable, laid_out
from shared.types import MODEL, START


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInputs:
    """Inputs of a fold with slots beside the updates.

    Attributes:
        table: Layout of the global model; every update has the same.
        parameters: Places of the trainable tensors in that layout, ascending.
        start: The model that clients started the round from.
        slots: File of each slot as the round before left it, by name; a slot without a file is its first value.
        view: Facts about the run.
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
        method: The method; it has slots under this configuration.
        config: Its hyper-parameters.
        block_elements: Elements read at a time from each file.

    Raises:
        PayloadCorrupt: A stored blob is missing, or shorter than its header says.
    """
    table, weights = inputs.table, [update.weight for update in updates]
    models = (MODEL, START) if method.has_start(config) else (MODEL,)
    slots, first_values = slot_table(table, inputs.parameters), method.server_slots(config)
    yield {**dict.fromkeys(models, table.header), **dict.fromkeys(first_values, slots.header)}
    assert method.slot_fold is not None
    begin = len(slots.header)
    for is_trained, region in marked_regions(table, frozenset(inputs.parameters)):
        kept = replace(region, begin=begin)  # the same elements in a slot's file
        if is_trained:
            begin += region.end - region.begin
        for first, count in cuts(region, block_elements):
            blocks = (read_block(update.path, region, first, count) for update in updates)
            read_start = partial(read_block, inputs.start, region, first, count)
            if not is_trained:
                block = as_bytes(method.fold(read_start, blocks, weights, config), region)
                yield dict.fromkeys(models, block)
                continue
            before = {
                name: _slot_block(inputs, name, value, kept, first, count) for name, value in first_values.items()
            }
            folded = method.slot_fold(read_start(), blocks, weights, before, inputs.view, config)
            yield {name: as_bytes(block, region) for name, block in _made(folded, models, first_values).items()}


def _slot_block(inputs: SlotInputs, name: str, value: float, kept: TensorEntry, first: int, count: int) -> Block:
    if name not in inputs.slots:
        return np.full(count, value, np.float32)
    return read_block(inputs.slots[name], kept, first, count)


def _made(folded: FoldedBlock, models: Sequence[str], names: Mapping[str, float]) -> dict[str, Block]:
    made = {MODEL: folded.result, **{name: folded.slots[name] for name in names}}
    if START in models:
        assert folded.start is not None, "a method with has_start gives a start block"
        made[START] = folded.start
    return made
