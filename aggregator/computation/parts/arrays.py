"""The server's step after the fold: its small arrays, and the head of the round's model where the method makes another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from aggregator.computation.fold import cuts
from aggregator.computation.round_inputs import RoundInputs, RoundMade
from aggregator.store.blobs.hashed_reading import HashedBlob, whole_bytes
from shared.config.declared_arrays import declared_arrays, declared_uploads
from shared.config.run import RunConfig
from shared.methods.arrays import ArrayGroup, group_fault
from shared.methods.parts.part import ServerResult, ServerRound
from shared.tensors import DTYPES, TensorEntry, TensorTable, from_bytes, to_bytes
from shared.types import FEATURE_DIM, HEAD, MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """Inputs of a server's step, as files.

    Attributes:
        round: Number of the round.
        feature_dim: D.
        table: Layout of the model.
        head: Places of the head's tensors in that layout.
        start: The model that clients started the round from.
        folded: The folded model.
        uploads: Files of each update's declared groups, by group, in client-id order.
        arrays: File of each group of server arrays as the round before left it, by group.
    """

    round: int
    feature_dim: int
    table: TensorTable
    head: Sequence[int]
    start: Path
    folded: Path
    uploads: Sequence[Mapping[str, Path]]
    arrays: Mapping[str, Path]


def with_arrays(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Make the server arrays, and where the step says so another head; the next round then starts from the folded model."""
    if not of.method.keeps_arrays(of.hyper):
        return made
    current, dim = of.run.current_round, of.int_lists[FEATURE_DIM][0]
    assert current is not None
    names = sorted(declared_uploads(of.config, dim))
    inputs = StepInputs(
        round=current.number,
        feature_dim=dim,
        table=of.table,
        head=of.places(HEAD),
        start=of.start,
        folded=of.stored(made.model),
        uploads=[{name: of.stored(update.payload.tensor_group(name)) for name in names} for update in of.updates],
        arrays=of.state(list(declared_arrays(of.config, dim))),
    )
    arrays, head = stepped(inputs, of.config)
    state = {**made.server_state, **{name: of.blobs.put(name, [data]) for name, data in arrays.items()}}
    if head is None:
        return replace(made, server_state=state)
    model = of.blobs.put(MODEL, with_head(inputs.folded, of.table, head, of.block_elements))
    return replace(made, model=model, newest=model, start=made.model, server_state=state)


def stepped(inputs: StepInputs, config: RunConfig) -> tuple[dict[str, bytes], ArrayGroup | None]:
    """Return the bytes of each group of server arrays, by group, and the head of the round's model where it is another.

    Raises:
        PayloadCorrupt: A stored blob is missing or damaged.
        ValueError: The method made something else than it declares.
    """
    method, num_classes = config.algorithm, len(config.data.classes)
    head = [inputs.table.entries[place] for place in inputs.head]
    step = ServerRound(
        round=inputs.round,
        seed=config.run.seed,
        num_classes=num_classes,
        feature_dim=inputs.feature_dim,
        uploads=_OneAtATime(inputs.uploads),
        arrays={name: _group(path) for name, path in inputs.arrays.items()},
        start_head=_tensors(inputs.start, head),
        head=_tensors(inputs.folded, head),
    )
    made = method.server_step(step, config.method)
    declared = declared_arrays(config, inputs.feature_dim)
    _check_made(made, {name: group_fault(made.arrays.get(name, {}), declared[name], num_classes) for name in declared})
    if made.head is not None and {name: (each.dtype, each.shape) for name, each in made.head.items()} != {
        name: (each.dtype, each.shape) for name, each in step.head.items()
    }:
        raise ValueError("the server's step made a head of other tensors than the model's")
    return {name: to_bytes(made.arrays[name]) for name in declared}, made.head


def with_head(model: Path, table: TensorTable, head: ArrayGroup, block_elements: int) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a model with other tensors in the place of its head.

    Raises:
        PayloadCorrupt: The file is missing or damaged; of damage, the last bytes alone tell.
    """
    blob = HashedBlob(model)
    yield table.header
    for entry in table.entries:
        if entry.name in head:
            yield np.ascontiguousarray(head[entry.name], DTYPES[entry.dtype]).tobytes()
            continue
        for first, count in cuts(entry, block_elements):
            yield blob.block(entry, first, count).tobytes()
    blob.finish()


class _OneAtATime(Iterable[Mapping[str, ArrayGroup]]):
    """The groups of each update in turn, read anew by every part that goes through them."""

    def __init__(self, uploads: Sequence[Mapping[str, Path]]) -> None:
        self._uploads = uploads

    def __iter__(self) -> Iterator[Mapping[str, ArrayGroup]]:
        return ({name: _group(path) for name, path in files.items()} for files in self._uploads)


def _group(path: Path) -> ArrayGroup:
    return from_bytes(whole_bytes(path))


def _tensors(path: Path, entries: Sequence[TensorEntry]) -> ArrayGroup:
    blob, found = HashedBlob(path), {}
    for entry in sorted(entries, key=lambda entry: entry.begin):
        found[entry.name] = blob.block(entry, 0, entry.num_elements).reshape(entry.shape)
    blob.finish()
    return {entry.name: found[entry.name] for entry in entries}


def _check_made(made: ServerResult, faults: Mapping[str, tuple[str, str, str] | None]) -> None:
    if made.arrays.keys() != faults.keys():
        raise ValueError(f"the server's step made the groups {sorted(made.arrays)}, not {sorted(faults)}")
    for name, fault in faults.items():
        if fault is not None:
            raise ValueError(f"group {name!r} of the server's step {fault[2]}")
