"""Aggregation of a round: each part of the method in its order, from the fold of the models to the global prototypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fedplcc.aggregator.computation.parts.arrays import with_arrays
from fedplcc.aggregator.computation.parts.average import with_average
from fedplcc.aggregator.computation.parts.model import folded
from fedplcc.aggregator.computation.parts.prototypes import count_prototypes, with_prototypes
from fedplcc.aggregator.computation.parts.stage_mean import with_stage_mean
from fedplcc.aggregator.computation.parts.wire import with_encoding
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.shared.tensors import prototypes_to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, BlobRef, PrototypeCounts

Half = Callable[[RoundMade, RoundInputs], RoundMade]
"""Aggregator's half of a part: what the round comes to with it; as it was, in a run without the part."""
OF_MODELS: tuple[Half, ...] = (folded, with_arrays, with_stage_mean, with_average, with_encoding)
OF_PROTOTYPES: tuple[Half, ...] = (with_prototypes,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The result of aggregating a round; the blobs are durable."""

    model: BlobRef
    prototypes: BlobRef
    prototype_counts: PrototypeCounts
    start: BlobRef | None = None
    server_state: Mapping[str, BlobRef] = field(default_factory=dict)
    norms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """See `RoundMade`."""


def aggregate(of: RoundInputs) -> Aggregated:
    """Compute the next global model, server state and prototypes of a run's open round, and store them as blobs.

    The result depends only on the run's model, prototypes and server state, its updates, those of `earlier_updates`, its
    eligible clients and its configuration: updates are taken in client-id order.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
        StoreUnavailable: The disk cannot be written.
    """
    assert of.run.model is not None
    made = RoundMade(model=of.run.model, newest=of.run.model)
    for half in OF_MODELS:
        made = half(made, of)
    if not made.names(made.newest):
        of.blobs.unnamed.append(
            made.newest.sha256
        )  # the method starts from another model: nothing else tells of this one
    if of.observer is not None:
        of.observer.folded()
    for half in OF_PROTOTYPES:
        made = half(made, of)
    if of.observer is not None:
        of.observer.clustered()
    return Aggregated(
        model=made.model,
        prototypes=of.blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(made.prototypes)]),
        prototype_counts=count_prototypes(made.prototypes, len(of.config.data.classes)),
        start=made.start,
        server_state=made.server_state,
        norms=made.norms,
    )
