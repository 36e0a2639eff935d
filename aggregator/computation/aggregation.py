"""Aggregation of a round: the fold of the models and the clusters of the prototypes.

Where clients keep their models (FedProto as published) nothing is folded: the global model stays that of round 0.

Prototypes of clients without an update in this round may stay in the pool for some rounds (`method.proto_staleness`;
docs/algorithms.md, rule 1.9); their models do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from aggregator.computation.fold import WeightedModel, fold_models
from aggregator.rounds import machine
from aggregator.rounds.configuration import config_of
from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore
from shared.methods.base import fold_weights, per_class_counts
from shared.methods.prototypes import PrototypeConfig
from shared.tensors import TensorTable, prototypes_from_bytes, prototypes_to_bytes
from shared.types import GLOBAL_CLUSTER, MODEL, BlobRef, PrototypeCounts, PrototypeSet, Run, Update


class AggregationObserver(Protocol):
    """Observer of a round's aggregation."""

    def blocks(self, blocks: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the blocks of the folded model unchanged."""

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


def proto_staleness(run: Run) -> int:
    """Return the number of past rounds whose prototypes a round may use besides its own."""
    method = config_of(run).method
    return method.proto_staleness if isinstance(method, PrototypeConfig) else 0


def earlier_updates(run: Run, store: Store) -> Mapping[str, Update]:
    """Return the earlier updates whose prototypes are in the pool of the run's current round, by client id."""
    current, staleness = run.current_round, proto_staleness(run)
    if current is None or current.number == 0 or not staleness:
        return {}
    found = store.newest_updates(run.run_id, first=max(1, current.number - staleness), end=current.number)
    absent = set(machine.eligible(run)) - set(current.updates)
    return {client_id: update for client_id, update in found.items() if client_id in absent}


def aggregate(
    run: Run,
    table: TensorTable,
    blobs: BlobStore,
    block_elements: int,
    earlier: Mapping[str, Update] = MappingProxyType({}),
    observer: AggregationObserver | None = None,
) -> Aggregated:
    """Compute the next global model and prototypes of a run's open round, and store them as blobs.

    The result depends only on the run's model, its updates, those of `earlier_updates` and its configuration: updates are
    taken in client-id order.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
        StoreUnavailable: The disk cannot be written.
    """
    config = config_of(run)
    method, hyper = config.algorithm, config.method
    assert run.current_round is not None
    updates = [run.current_round.updates[client_id] for client_id in sorted(run.current_round.updates)]
    model, start = run.model, _stored(blobs, run.model)
    assert model is not None
    if method.shares_model(hyper):
        weights = fold_weights([update.num_examples for update in updates], hyper)
        models = [_stored(blobs, update.payload.tensor_group(MODEL)) for update in updates]
        weighted = [WeightedModel(path, weight) for path, weight in zip(models, weights, strict=True)]
        blocks = fold_models(table, start, weighted, method, hyper, block_elements)
        model = blobs.put(MODEL, blocks if observer is None else observer.blocks(blocks))
    if observer is not None:
        observer.folded()
    prototypes = PrototypeSet.empty()
    if method.server_prototypes is not None and method.prototype_kind is not None:
        pool = {**earlier, **run.current_round.updates}
        pooled = [pool[client_id].payload.prototype_set(method.prototype_kind) for client_id in sorted(pool)]
        paths = [_stored(blobs, blob) for blob in pooled]
        sets = [prototypes_from_bytes(path.read_bytes()) for path in paths]
        prototypes = method.server_prototypes(sets, len(config.data.classes), hyper)
    if observer is not None:
        observer.clustered()
    return Aggregated(
        model=model,
        prototypes=blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(prototypes)]),
        prototype_counts=count_prototypes(prototypes, len(config.data.classes)),
    )


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
