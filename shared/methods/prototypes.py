"""Parts that prototype methods are built from: summarisers of both halves, and terms of the local loss.

Shape legend: B batch, N samples of a client, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from shared.finch import MergeMean, finch_star, partition_level
from shared.methods.base import Array, ClientStep, MethodConfig, Ops, Prototypes, Report
from shared.types import FloatArray, IntArray, PrototypeSet


def _known_partition(partition: str) -> str:
    partition_level(partition)
    return partition


Partition = Annotated[str, AfterValidator(_known_partition)]
"""Which of FINCH's partitions gives the prototypes: `last`, `first` or `index:<l>`."""


MIN_FEATURE_NORM = 1e-8
"""Norms are floored here in `Ops.cosine`; a feature at or below it is zero for the loss."""


class PrototypeConfig(MethodConfig):
    """Hyper-parameters that every method with prototypes has."""

    proto_staleness: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Past rounds from which the last prototypes of a client of the run that gave no update this round stay in the pool: it
    was not drawn, or was dropped. 0: only this round's (FPL). Where a domain has one client, a larger number keeps the
    domain among the global prototypes while that client is away."""

    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The key is younger than the first release, whose hashes of runs without it must not change.
        values: dict[str, Any] = plain(self)
        if values["proto_staleness"] == 0:
            del values["proto_staleness"]
        return values


# -- Summaries: what leaves the client, and what the server makes of it ------------------------------------------------


def local_clusters(
    features_ND: FloatArray,
    labels_N: IntArray,
    num_classes: int,
    *,
    partition: str = "last",
    min_cluster_size: int = 1,
) -> Report:
    """Return FINCH*'s centres of each class's features, weighted by how many samples each stands for.

    Classes come in order; a class without samples has no prototype. Features are neither normalised nor weighted.

    Args:
        features_ND: float32 features of the client's training samples under its final weights.
        labels_N: Their classes, in [0, M).
        num_classes: M.
        partition: FINCH's partition.
        min_cluster_size: Smaller clusters stay on the client; their samples count as excluded, as do zero features.

    Raises:
        ValueError: A feature that is not finite.
    """
    sets = []
    for class_id in range(num_classes):
        rows_ND = features_ND[labels_N == class_id]
        clusters = finch_star(rows_ND, np.ones(len(rows_ND)), partition)
        kept_C = clusters.weights_C >= min_cluster_size
        sets.append((class_id, clusters.centres_CD[kept_C], clusters.weights_C[kept_C]))
    prototypes = _stack(sets, features_ND.shape[1])
    num_represented = int(prototypes.weights.sum(dtype=np.float64))
    return Report(prototypes=prototypes, num_excluded=len(labels_N) - num_represented)


def global_clusters(
    sets: Sequence[PrototypeSet], num_classes: int, *, partition: str = "last", merge_mean: MergeMean = "plain"
) -> PrototypeSet:
    """Return FINCH*'s centres of each class's pooled prototypes, their weights normalised to sum to 1 per class.

    Args:
        sets: The cohort's prototypes in client-id order, weighted by sample counts; empty sets may have any feature size.
        num_classes: M.
        partition: FINCH's partition.
        merge_mean: Whether a centre averages prototypes alike or by weight.
    """
    filled = [prototypes for prototypes in sets if len(prototypes)]
    if not filled:
        return PrototypeSet.empty(max((prototypes.vectors.shape[1] for prototypes in sets), default=0))
    # Rows stay in (client, index) order, so a class's rows are sorted whatever order the updates came in.
    vectors_PD = np.concatenate([prototypes.vectors for prototypes in filled])
    class_ids_P = np.concatenate([prototypes.class_ids for prototypes in filled])
    weights_P = np.concatenate([prototypes.weights for prototypes in filled])
    pooled = []
    for class_id in range(num_classes):
        is_class_P = class_ids_P == class_id
        clusters = finch_star(vectors_PD[is_class_P], weights_P[is_class_P], partition, merge_mean)
        pooled.append((class_id, clusters.centres_CD, clusters.weights_C / clusters.weights_C.sum()))
    return _stack(pooled, vectors_PD.shape[1])


def _stack(
    sets: Sequence[tuple[int, FloatArray, np.ndarray[tuple[int], np.dtype[np.float64]]]], dim: int
) -> PrototypeSet:
    filled = [entry for entry in sets if len(entry[1])]
    if not filled:
        return PrototypeSet.empty(dim)
    return PrototypeSet.of(
        np.concatenate([vectors for _, vectors, _ in filled]),
        np.concatenate([np.full(len(vectors), class_id) for class_id, vectors, _ in filled]),
        np.concatenate([weights for _, _, weights in filled]),
    )


# -- Terms of the local loss -------------------------------------------------------------------------------------------


def sparse_cosine(ops: Ops, features_BD: Array, vectors_GD: Array, alpha: float, floor: float) -> Array:
    """Return max(cos(z_i, g), floor)^alpha, `[B, G]`.

    The floor keeps the power defined for negative cosines and its slope, alpha floor^(alpha - 1), finite; below it the
    gradient is 0.
    """
    return ops.clamp_min(ops.cosine(features_BD, vectors_GD), floor) ** alpha


def same_class(labels_B: Array, prototypes: Prototypes) -> Array:
    """Return the mask `[B, G]` of each sample's positives: the prototypes of its own class."""
    return labels_B[:, None] == prototypes.class_ids_G[None, :]


def contrast(ops: Ops, logits_BG: Array, is_positive_BG: Array) -> Array:
    """Return -log(sum over positives of exp / sum over all of exp), `[B]`, as a difference of log-sum-exps.

    A sample without positives gets a value without meaning; `batch_mean` leaves it out.
    """
    return ops.logsumexp(logits_BG) - ops.logsumexp(logits_BG, is_positive_BG)


def has_positives(step: ClientStep, is_positive_BG: Array) -> Array:
    """Return the mask `[B]` of samples that prototype terms apply to.

    Left out are samples whose class has no prototype, and those whose feature is zero: it has no direction, and the
    gradient of its cosine is one over the floor of the norm.
    """
    return is_positive_BG.any(-1) & (step.ops.row_norm(step.features_BD) > MIN_FEATURE_NORM)


def batch_mean(ops: Ops, values_B: Array, applies_B: Array) -> Array:
    """Return the mean over the whole batch, where samples that the term does not apply to count as 0."""
    return ops.where(applies_B, values_B, 0.0).mean()
