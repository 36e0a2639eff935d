"""The server's step after the fold: its small arrays, and the head of the round's model where the method makes another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedplcc.aggregator.computation.fold import cuts
from fedplcc.aggregator.computation.model_checks import BLOCK_ELEMENTS
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.aggregator.rounds.far_updates import relative_sizes
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob, whole_bytes
from fedplcc.shared.config.declared_arrays import declared_arrays, declared_uploads
from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema, group_fault
from fedplcc.shared.methods.folds.rules import with_rule
from fedplcc.shared.methods.parts.part import ServerResult, ServerRound
from fedplcc.shared.tensors import DTYPES, Array, TensorEntry, TensorTable, from_bytes, to_bytes
from fedplcc.shared.types import FEATURE_DIM, HEAD, MODEL


def with_arrays(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Make the server arrays, and where the step says so another head; the next round then starts from the folded model.

    Raises:
        PayloadCorrupt: A stored blob is missing or damaged.
        ValueError: The method made something else than it declares.
    """
    if not of.method.keeps_arrays(of.hyper):
        return made
    current, dim, num_classes = of.run.current_round, of.int_lists[FEATURE_DIM][0], len(of.config.data.classes)
    assert current is not None
    head, model = [of.table.entries[place] for place in of.places(HEAD)], of.stored(made.model)
    declared = declared_arrays(of.config, dim)
    uploads = _Uploads(of, declared_uploads(of.config, dim))
    step = ServerRound(
        round=current.number,
        seed=of.config.run.seed,
        num_classes=num_classes,
        feature_dim=dim,
        uploads=uploads,
        arrays={name: _group(path) for name, path in of.state(list(declared)).items()},
        start_head=_tensors(of.start, head),
        head=_tensors(model, head),
    )
    result = with_rule(of.method, of.rule).server_step(step, of.hyper)
    _check_made(
        result, {name: group_fault(result.arrays.get(name, {}), declared[name], num_classes) for name in declared}
    )
    made = replace(made, norms={**made.norms, **uploads.sizes()})
    state = {**made.server_state, **{name: of.blobs.put(name, [to_bytes(result.arrays[name])]) for name in declared}}
    if result.head is None:
        return replace(made, server_state=state)
    if _layout(result.head) != _layout(step.head):
        raise ValueError("the server's step made a head of other tensors than the model's")
    whole = of.blobs.put(MODEL, with_head(model, of.table, result.head, of.block_elements))
    return replace(made, model=whole, newest=whole, start=made.model, server_state=state)


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


class _Uploads(Iterable[Mapping[str, ArrayGroup]]):
    """Groups of each update in client-id order, read anew by every part that goes through them, and measured."""

    def __init__(self, of: RoundInputs, declared: Mapping[str, GroupSchema]) -> None:
        self._method, self._declared = of.method, declared
        self._num_examples = {update.client_id: update.num_examples for update in of.updates}
        self._files = {
            update.client_id: {name: of.stored(update.payload.tensor_group(name)) for name in sorted(declared)}
            for update in of.updates
        }
        self._norms: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
        self._is_measured: set[tuple[str, str]] = set()

    def __iter__(self) -> Iterator[Mapping[str, ArrayGroup]]:
        for client_id, files in self._files.items():
            groups = {name: _group(path) for name, path in files.items()}
            most = self._num_examples[client_id]
            for name, group in self._method.compared(groups).items():
                for array, numbers in group.items():
                    is_whole = numbers.dtype.kind == "i"
                    if is_whole and None in self._declared[name][array][1]:
                        continue  # such a list names classes
                    if not is_whole or (numbers.size and not 0 <= numbers.min() <= numbers.max() <= most):
                        self._is_measured.add((name, array))
                    self._norms.setdefault((name, array), {})[client_id] = _norms(numbers)
            yield groups

    def sizes(self) -> Mapping[str, Mapping[str, float]]:
        """Return how large the groups were, of each client that of the array that stands out most; see `relative_sizes`.

        Numbers of a client's own samples are left out: how they are spread over classes is nobody's fault.
        """
        found: dict[str, dict[str, float]] = {}
        for name, array in sorted(self._is_measured):
            norms = self._norms[name, array]
            for client_id, size in relative_sizes(norms, self._num_examples).items():
                of_group = found.setdefault(name, {})
                of_group[client_id] = max(size, of_group.get(client_id, 0.0))
        return found


def _layout(head: ArrayGroup) -> Mapping[str, tuple[object, tuple[int, ...]]]:
    return {name: (each.dtype, each.shape) for name, each in head.items()}


def _norms(array: Array) -> tuple[float, ...]:
    """Return the L2 norm of numbers, the sum of that of their rows and the largest of them, in the memory of a block."""
    rows = array.reshape(array.shape[0] if array.shape else 1, math.prod(array.shape[1:]))
    squares = together = largest = 0.0
    at_a_time = max(1, BLOCK_ELEMENTS // max(1, rows.shape[1]))
    for first in range(0, len(rows), at_a_time):
        of_rows = sum(
            np.square(rows[first : first + at_a_time, begin : begin + BLOCK_ELEMENTS], dtype=np.float64).sum(axis=1)
            for begin in range(0, rows.shape[1], BLOCK_ELEMENTS)
        )
        squares += float(np.sum(of_rows))
        together += float(np.sum(np.sqrt(of_rows)))
        largest = max(largest, float(np.max(of_rows, initial=0.0)))
    return math.sqrt(squares), together, math.sqrt(largest)


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
