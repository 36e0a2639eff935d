"""Aggregation of a round: the fold of the models, with the server's slots and arrays, and the clusters of the prototypes.

Where clients keep their models (FedProto as published) nothing is folded: the global model stays that of round 0. Where
they keep a part of it (FedRep as published) that part stays.

Prototypes of clients without an update in this round may stay in the pool for some rounds (`method.proto_staleness`), and
those of all clients for some rounds (`method.proto_window`; docs/algorithms.md, rule 1.9); their models do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from aggregator.computation.averaged_result import averages, with_average
from aggregator.computation.fold import WeightedModel, fold_models
from aggregator.computation.server_step import StepInputs, stepped, with_head
from aggregator.computation.slot_fold import SlotInputs, fold_with_slots
from aggregator.computation.stage_mean import STAGE_MEAN, with_stage_mean
from aggregator.computation.update_checks import prototype_norm
from aggregator.rounds import machine
from aggregator.rounds.configuration import config_of
from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore, BlobWriter
from aggregator.store.blobs.hashed_reading import whole_bytes
from shared.config.declared_arrays import declared_arrays, declared_uploads, keeps_arrays
from shared.config.run import RunConfig
from shared.methods.base import Method, fold_weights, per_class_counts
from shared.methods.prototypes import PrototypeConfig
from shared.methods.slots import ServerView
from shared.tensors import TensorTable, prototypes_from_bytes, prototypes_to_bytes
from shared.types import (
    FEATURE_DIM,
    GLOBAL_CLUSTER,
    HEAD,
    MODEL,
    PARAMETERS,
    START,
    BlobRef,
    PrototypeCounts,
    PrototypeSet,
    Run,
    Update,
)

Blocks = TypeVar("Blocks")

PAGE = 1000
"""Updates of earlier rounds read at a time."""


class AggregationObserver(Protocol):
    """Observer of a round's aggregation."""

    def blocks(self, blocks: Iterator[Blocks]) -> Iterator[Blocks]:
        """Yield the blocks of the folded model, and of what is folded with it, unchanged."""

    def folded(self) -> None:
        """Note that the new model is on the disk."""

    def clustered(self) -> None:
        """Note that the new prototypes are computed; their inputs are still in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The result of aggregating a round; the blobs are durable."""

    model: BlobRef
    prototypes: BlobRef
    prototype_counts: PrototypeCounts
    start: BlobRef | None = None
    server_state: Mapping[str, BlobRef] = field(default_factory=dict)
    prototype_norms: Mapping[str, float] = field(default_factory=dict)
    """The largest L2 norm among each client's prototypes of the round."""


def num_past_rounds(run: Run) -> int:
    """Return the number of past rounds whose prototypes a round may use besides its own."""
    method = config_of(run).method
    return method.num_past_rounds if isinstance(method, PrototypeConfig) else 0


def earlier_updates(run: Run, store: Store) -> tuple[Update, ...]:
    """Return the earlier updates whose prototypes are in the pool of the run's current round, by client id and round."""
    current = run.current_round
    if current is None or current.number == 0:
        return ()
    return pooled_updates(run, store, current.number, current.updates.keys())


def pooled_updates(run: Run, store: Store, number: int, present: Set[str]) -> tuple[Update, ...]:
    """Return the updates of earlier rounds whose prototypes a round's pool has, by client id and round.

    Args:
        run: The run; its eligible clients alone are in a pool.
        store: Where its updates are.
        number: The round, from 1.
        present: Clients with an update of the round itself.
    """
    method, num_past = config_of(run).method, num_past_rounds(run)
    if not isinstance(method, PrototypeConfig) or not num_past:
        return ()
    first, clients = max(1, number - num_past), set(machine.eligible(run))
    if method.proto_window == 1:
        newest = store.newest_updates(run.run_id, first=first, end=number)
        found = [newest[client_id] for client_id in sorted((clients - present) & newest.keys())]
        return tuple(update for update in found if _is_remembered(run, store, update.client_id, first, number))
    forgotten = {client_id: retired.round for client_id, retired in run.retired.items() if retired.is_forgotten}
    window = [
        (update.client_id, of, update)
        for of, update in _updates_in(store, run.run_id, first, number)
        if update.client_id in clients and of > forgotten.get(update.client_id, 0)
    ]
    return tuple(update for _, _, update in sorted(window, key=lambda entry: entry[:2]))


def _updates_in(store: Store, run_id: str, first: int, end: int) -> Iterator[tuple[int, Update]]:
    """Yield the updates of the rounds `first` to `end` - 1 with their rounds, by round and client id."""
    after = (first, "")  # no client id is empty
    while page := store.list_updates(run_id, after=after, limit=PAGE):
        for number, update in page:
            if number >= end:
                return
            yield number, update
            after = (number, update.client_id)


def _is_remembered(run: Run, store: Store, client_id: str, first: int, number: int) -> bool:
    """Whether a client's newest update in the rounds `first` to `number` - 1 is younger than what the run forgot of it."""
    retired = run.retired.get(client_id)
    if retired is None or not retired.is_forgotten or retired.round < first:
        return True
    return client_id in store.newest_updates(run.run_id, first=retired.round + 1, end=number)


def aggregate(
    run: Run,
    table: TensorTable,
    blobs: BlobStore,
    block_elements: int,
    earlier: Sequence[Update] = (),
    observer: AggregationObserver | None = None,
    int_lists: Mapping[str, Sequence[int]] = MappingProxyType({}),
    domains: Mapping[str, str] = MappingProxyType({}),
) -> Aggregated:
    """Compute the next global model, server state and prototypes of a run's open round, and store them as blobs.

    The result depends only on the run's model, prototypes and server state, its updates, those of `earlier_updates`, its
    eligible clients and its configuration: updates are taken in client-id order.

    Args:
        run: The run.
        table: Layout of its model.
        blobs: Where the inputs are, and the results go.
        block_elements: Elements of a model that are read at a time.
        earlier: Earlier updates whose prototypes are in the pool, by client id and round.
        observer: Is told how it goes on.
        int_lists: Those of round 0: the feature size, and places of tensors by what they are.
        domains: The domain of each client, for `method.averaging = "domain"`.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
        StoreUnavailable: The disk cannot be written.
    """
    config = config_of(run)
    method, hyper = config.algorithm, config.method
    assert run.current_round is not None
    updates = [run.current_round.updates[client_id] for client_id in sorted(run.current_round.updates)]
    model, start = run.model, _stored(blobs, run.start or run.model)
    assert model is not None
    made: dict[str, BlobRef] = {}
    if method.shares_model(hyper):
        of = [domains.get(update.client_id, "") for update in updates]
        weights = fold_weights([update.num_examples for update in updates], hyper, of)
        models = [_stored(blobs, update.payload.tensor_group(MODEL)) for update in updates]
        weighted = [WeightedModel(path, weight) for path, weight in zip(models, weights, strict=True)]
        slots = method.server_slots(hyper)
        if slots:
            inputs = SlotInputs(
                table=table,
                parameters=int_lists[PARAMETERS],
                start=start,
                slots={name: _stored(blobs, run.server_state[name]) for name in slots if name in run.server_state},
                view=ServerView(round=run.current_round.number, num_eligible=len(machine.eligible(run))),
            )
            made = _written(blobs, fold_with_slots(inputs, weighted, method, hyper, block_elements), observer)
            model = made.pop(MODEL)
            if START in made:
                made[START] = replace(made[START], role=MODEL)  # under which clients look for the model to start from
        else:
            withheld = withheld_places(config, int_lists)
            blocks = fold_models(table, start, weighted, method, hyper, block_elements, withheld)
            model = blobs.put(MODEL, blocks if observer is None else observer.blocks(blocks))
    if keeps_arrays(config):
        made.update(_stepped(run, table, blobs, int_lists, model, block_elements))
        model = made.pop(MODEL, model)
    came_to = model
    if config.stream.epoch_model == "stage_mean" and method.shares_model(hyper):
        number, before = run.current_round.number, run.server_state.get(STAGE_MEAN)
        model, made = with_stage_mean(model, made, before, number, config.stream, table, blobs, block_elements)
    if averages(hyper) and method.shares_model(hyper):
        before = run.model if run.current_round.number > 1 else None
        model, made = with_average(model, made, before, hyper.average_decay, table, blobs, block_elements)
    if came_to.sha256 not in {blob.sha256 for blob in (model, *made.values())}:
        blobs.unnamed.append(came_to.sha256)  # the method starts from another model, so nothing else tells of this one
    if observer is not None:
        observer.folded()
    prototypes, norms = PrototypeSet.empty(), dict[str, float]()
    if method.prototype_kind is not None:
        pool = sorted([*earlier, *updates], key=lambda update: update.client_id)  # stable: a client's oldest come first
        pooled = [update.payload.prototype_set(method.prototype_kind) for update in pool]
        paths = [_stored(blobs, blob) for blob in pooled]
        sets = [prototypes_from_bytes(whole_bytes(path)) for path in paths]
        norms = {update.client_id: prototype_norm(each) for update, each in zip(pool, sets, strict=True)}  # newest last
        prototypes = method.global_prototypes(sets, _previous(run, method, blobs), len(config.data.classes), hyper)
    if observer is not None:
        observer.clustered()
    return Aggregated(
        model=model,
        prototypes=blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(prototypes)]),
        prototype_counts=count_prototypes(prototypes, len(config.data.classes)),
        start=made.pop(START, None),
        server_state=made,
        prototype_norms={update.client_id: norms[update.client_id] for update in updates if norms},
    )


def _previous(run: Run, method: Method, blobs: BlobStore) -> PrototypeSet:
    """Return the global prototypes of the round before, where the method uses them; else the empty set."""
    if method.carry_prototypes is None or run.prototypes is None:
        return PrototypeSet.empty()
    return prototypes_from_bytes(whole_bytes(_stored(blobs, run.prototypes)))


def _stepped(
    run: Run,
    table: TensorTable,
    blobs: BlobStore,
    int_lists: Mapping[str, Sequence[int]],
    folded: BlobRef,
    block_elements: int,
) -> dict[str, BlobRef]:
    """Make the server arrays, by group, and where the head changes the round's model; the folded one is the next start."""
    config, current = config_of(run), run.current_round
    method, dim = config.algorithm, int_lists[FEATURE_DIM][0]
    assert current is not None
    names, kept = sorted(declared_uploads(config, dim)), declared_arrays(config, dim)
    inputs = StepInputs(
        round=current.number,
        feature_dim=dim,
        table=table,
        head=() if method.server_step is None else int_lists[HEAD],
        start=_stored(blobs, run.start or run.model),
        folded=_stored(blobs, folded),
        uploads=[
            {name: _stored(blobs, current.updates[client_id].payload.tensor_group(name)) for name in names}
            for client_id in sorted(current.updates)
        ],
        arrays={name: _stored(blobs, run.server_state[name]) for name in kept if name in run.server_state},
    )
    arrays, head = stepped(inputs, config)
    made = {name: blobs.put(name, [data]) for name, data in arrays.items()}
    if head is None:
        return made
    model = blobs.put(MODEL, with_head(inputs.folded, table, head, block_elements))
    return {**made, MODEL: model, START: folded}


def withheld_places(config: RunConfig, int_lists: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """Return the places of the model's tensors that no update has, because clients keep them for themselves."""
    part = config.algorithm.withheld_part(config.method)
    return () if part == "none" else int_lists[part]


def _written(
    blobs: BlobStore, pieces: Iterator[Mapping[str, bytes | memoryview]], observer: AggregationObserver | None
) -> dict[str, BlobRef]:
    """Write several blobs at once, each by its name; return their references."""
    with ExitStack() as open_blobs:
        writers: dict[str, BlobWriter] = {}
        for piece in pieces if observer is None else observer.blocks(pieces):
            for name, data in piece.items():
                if name not in writers:
                    writers[name] = open_blobs.enter_context(blobs.writing(name))
                writers[name].write(data)
        return {name: writer.finish() for name, writer in writers.items()}


def count_prototypes(prototypes: PrototypeSet, num_classes: int) -> PrototypeCounts:
    """Count global prototypes by class, and take the least, median and greatest of their weights."""
    weights = prototypes.weights.tolist()
    return PrototypeCounts(
        by_class=tuple(per_class_counts(prototypes.class_ids, num_classes).tolist()),
        weights=(min(weights), statistics.median(weights), max(weights)) if weights else None,
    )


def _stored(blobs: BlobStore, blob: BlobRef | None) -> Path:
    assert blob is not None
    return blobs.verified_path(blob.sha256)
