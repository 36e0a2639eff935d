"""Aggregation of a round: each part of the method in its order, from the fold of the models to the global prototypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from aggregator.computation.parts.arrays import with_arrays
from aggregator.computation.parts.average import with_average
from aggregator.computation.parts.model import folded
from aggregator.computation.parts.prototypes import count_prototypes, with_prototypes
from aggregator.computation.parts.stage_mean import with_stage_mean
from aggregator.computation.round_inputs import AggregationObserver, RoundInputs, RoundMade
from aggregator.store.blobs.blob_store import BlobStore
from shared.tensors import TensorTable, prototypes_to_bytes
from shared.types import GLOBAL_CLUSTER, BlobRef, PrototypeCounts, Run, Update

Half = Callable[[RoundMade, RoundInputs], RoundMade]
"""Aggregator's half of a part: what the round comes to with it; as it was, in a run without the part."""
OF_MODELS: tuple[Half, ...] = (folded, with_arrays, with_stage_mean, with_average)
OF_PROTOTYPES: tuple[Half, ...] = (with_prototypes,)


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
    of = RoundInputs(
        run=run,
        table=table,
        blobs=blobs,
        block_elements=block_elements,
        earlier=earlier,
        observer=observer,
        int_lists=int_lists,
        domains=domains,
    )
    assert run.model is not None
    made = RoundMade(model=run.model, newest=run.model)
    for half in OF_MODELS:
        made = half(made, of)
    if made.newest.sha256 not in {
        blob.sha256 for blob in (made.model, made.start, *made.server_state.values()) if blob
    }:
        blobs.unnamed.append(
            made.newest.sha256
        )  # the method starts from another model, so nothing else tells of this one
    if observer is not None:
        observer.folded()
    for half in OF_PROTOTYPES:
        made = half(made, of)
    if observer is not None:
        observer.clustered()
    return Aggregated(
        model=made.model,
        prototypes=blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(made.prototypes)]),
        prototype_counts=count_prototypes(made.prototypes, len(of.config.data.classes)),
        start=made.start,
        server_state=made.server_state,
        prototype_norms=made.prototype_norms,
    )
