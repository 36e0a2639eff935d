"""Parts of prototype methods: prototypes of clients and server, and terms of the local loss.

Shape legend: B batch, N samples of a client, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field

from fedplcc.shared.methods.arithmetic.finch import MIN_NORM, Clusters, MergeMean, finch_star, partition_level
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.parts.prototypes import Report, per_class_counts
from fedplcc.shared.methods.step import Array, ClientStep, Ops, Prototypes
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet


def _known_partition(partition: str) -> str:
    partition_level(partition)
    return partition


Partition = Annotated[str, AfterValidator(_known_partition)]
"""Partition of FINCH whose centres are the prototypes: `last`, `first` or `index:<l>`."""


WeightsOver = Literal["class", "all"]
"""Prototypes whose weights sum to 1: those of each class, or all."""
MIN_FEATURE_NORM = 1e-8
"""Floor of norms in `Ops.cosine`; the loss treats a feature of this norm or less as zero."""
MAX_WINDOW = 100
"""Most rounds whose local prototypes are clustered together."""
SIMILARITY_FLOOR = 1e-4
"""Floor of cosines before the power alpha; with alpha = 0.5 the slope is at most 50."""


class PrototypeConfig(MethodConfig):
    """Hyper-parameters of every method with prototypes."""

    proto_staleness: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Age in rounds up to which the pool reuses the last prototypes of a client without an update in this round, because it
    was not selected or was dropped. With 0 the pool has this round's prototypes only (FPL). If a domain has one client, a
    larger number keeps the domain among the global prototypes while that client is away."""
    proto_pass: Literal["after_training", "last_epoch"] = "after_training"
    """Features that a client's prototypes summarise: those of all its samples, from a pass after training with the model in
    evaluation mode; or those that training computed in its last epoch, while the weights still changed, as the code of
    some authors does (docs/algorithms.md, rule 1.4)."""
    proto_window: Annotated[int, Field(ge=1, le=MAX_WINDOW)] = 1
    """Rounds whose local prototypes are in the pool: those of this round and of the ones before, of all clients, so that
    global prototypes move less. Ours. Each set counts as one of a client of its own."""
    balance: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """Most that the prototype terms may pull the features, in pulls of the cross-entropy: in each step the gradient of all
    terms but the cross-entropy with respect to the features is scaled to at most so many times the length of the
    cross-entropy's (docs/algorithms.md, rule 1.19). Ours. With 0 nothing is scaled, as published."""

    @property
    def num_past_rounds(self) -> int:
        """Number of past rounds whose prototypes a round may use besides its own."""
        return max(self.proto_staleness, self.proto_window - 1)


class ClusterConfig(PrototypeConfig):
    """Hyper-parameters of methods whose clients cluster their features."""

    partition: Partition = "last"
    """FINCH's partition for clients and server: last, first or index:<l>."""
    min_cluster_size: Annotated[int, Field(ge=1, le=2**24)] = 1
    """Clusters of fewer samples stay on the client; a cluster of one sample is that sample's feature."""
    small_clusters: Literal["withhold", "merge"] = "withhold"
    """Samples of clusters below `min_cluster_size`: they stay on the client (withhold), or join the class's nearest cluster
    that is large enough, by the cosine of their centres; where none is, all of the class become one, if that is (merge)."""


# -- Prototypes: those of a client, and the server's from all clients ---------------------------------------------------


def local_clusters(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: ClusterConfig) -> Report:
    """Return FINCH*'s centres of each class's features; a centre's weight is its number of samples.

    Classes come in order; a class without samples has no prototype. Features are neither normalised nor weighted.

    Args:
        features_ND: float32 features of the client's training samples under its final weights.
        labels_N: Their classes, in [0, M).
        num_classes: M.
        config: The partition of FINCH and the smallest cluster; samples of smaller ones count as excluded, as do zero
            features.

    Raises:
        ValueError: A feature that is not finite.
    """
    sets = []
    for class_id in range(num_classes):
        rows_ND = features_ND[labels_N == class_id]
        clusters = finch_star(rows_ND, np.ones(len(rows_ND)), config.partition)
        if config.small_clusters == "merge":
            clusters = merged_clusters(clusters, config.min_cluster_size)
        kept_C = clusters.weights_C >= config.min_cluster_size
        sets.append((class_id, clusters.centres_CD[kept_C], clusters.weights_C[kept_C]))
    prototypes = _stack(sets, features_ND.shape[1])
    num_represented = int(prototypes.weights.sum(dtype=np.float64))
    return Report(prototypes=prototypes, num_excluded=len(labels_N) - num_represented)


def merged_clusters(clusters: Clusters, min_size: int) -> Clusters:
    """Return the clusters of a class with each small one in the nearest of the others; of all where none is large enough.

    Nearest is the largest cosine of their centres as FINCH made them, of equal ones the first. A centre is the mean of
    all samples of its cluster, rounded once.

    Args:
        clusters: Of one class; a weight is a number of samples.
        min_size: Fewest samples of a cluster.
    """
    is_small_C = clusters.weights_C < min_size
    if not is_small_C.any():
        return clusters
    large = np.flatnonzero(~is_small_C)
    into_C = np.zeros(len(is_small_C), np.int64)
    if len(large):
        units_CD = clusters.centres_CD.astype(np.float64)
        units_CD /= np.maximum(np.linalg.norm(units_CD, axis=1, keepdims=True), MIN_NORM)
        into_C[large] = np.arange(len(large))
        into_C[is_small_C] = (units_CD[is_small_C] @ units_CD[large].T).argmax(1)
    weights = np.bincount(into_C, weights=clusters.weights_C).astype(np.float64)
    centres = np.zeros((len(weights), clusters.centres_CD.shape[1]))
    np.add.at(centres, into_C, clusters.weights_C[:, None] * clusters.centres_CD)
    labels_N = np.where(clusters.labels_N < 0, -1, into_C[clusters.labels_N])
    return Clusters((centres / weights[:, None]).astype(np.float32), weights, labels_N, clusters.num_excluded)


def local_means(features_ND: FloatArray, labels_N: IntArray, num_classes: int) -> Report:
    """Return the mean feature of every class with samples, float32 rounded once, weighted by its number of samples.

    Zero features, which have no direction, are left out and count as excluded, as in `local_clusters`.

    Raises:
        ValueError: A feature that is not finite.
    """
    if not np.isfinite(features_ND).all():
        raise ValueError("a feature is not finite")
    is_used_N = np.linalg.norm(features_ND, axis=1) >= MIN_NORM
    used_ND, classes_N = features_ND[is_used_N], labels_N[is_used_N]
    counts_M = per_class_counts(classes_N, num_classes)
    present = np.flatnonzero(counts_M)
    vectors = [used_ND[classes_N == class_id].mean(0, dtype=np.float64) for class_id in present]
    prototypes = (
        PrototypeSet.of(np.stack(vectors), present, counts_M[present])
        if vectors
        else PrototypeSet.empty(features_ND.shape[1])
    )
    return Report(prototypes=prototypes, num_excluded=len(labels_N) - len(used_ND))


def pooled(sets: Sequence[PrototypeSet]) -> PrototypeSet:
    """Return all rows of all sets by class, then client, then index; a row's group id is the index of its set.

    Args:
        sets: The cohort's prototypes in client-id order; empty sets may have any feature size.
    """
    filled = [(place, prototypes) for place, prototypes in enumerate(sets) if len(prototypes)]
    if not filled:
        return PrototypeSet.empty(max((prototypes.vectors.shape[1] for prototypes in sets), default=0))
    class_ids_P = np.concatenate([prototypes.class_ids for _, prototypes in filled])
    order_P = np.argsort(class_ids_P, kind="stable")
    return PrototypeSet(
        np.concatenate([prototypes.vectors for _, prototypes in filled])[order_P],
        class_ids_P[order_P],
        np.concatenate([prototypes.weights for _, prototypes in filled])[order_P],
        np.concatenate([np.full(len(prototypes), place) for place, prototypes in filled])[order_P],
    )


def mean_per_class(sets: Sequence[PrototypeSet], num_classes: int, *, by_counts: bool) -> PrototypeSet:
    """Return one prototype of weight 1 per present class: the plain or weighted mean of the pooled ones."""
    pool = pooled(sets)
    if not len(pool):
        return pool
    present, vectors = np.unique(pool.class_ids), []
    for class_id in present:
        is_class_P = pool.class_ids == class_id
        rows_PD = pool.vectors[is_class_P].astype(np.float64)
        weights_P = pool.weights[is_class_P].astype(np.float64) if by_counts else np.ones(len(rows_PD))
        vectors.append((rows_PD * weights_P[:, None]).sum(0) / weights_P.sum())
    return PrototypeSet.of(np.stack(vectors), present, np.ones(len(present)))


def global_clusters(
    sets: Sequence[PrototypeSet],
    num_classes: int,
    *,
    partition: str = "last",
    merge_mean: MergeMean = "plain",
    is_equal: bool = False,
    over: WeightsOver = "class",
) -> PrototypeSet:
    """Return FINCH*'s centres of each class's pooled prototypes, their weights normalised to sum to 1 per class.

    Args:
        sets: The cohort's prototypes in client-id order, weighted by sample counts; empty sets may have any feature size.
        num_classes: M.
        partition: FINCH's partition.
        merge_mean: Whether a centre is the plain mean of its prototypes or their weighted mean.
        is_equal: Whether all centres weigh the same before weights are normalised, whatever the samples behind them.
        over: Prototypes whose weights sum to 1.
    """
    pool = pooled(sets)
    if not len(pool):
        return pool
    merged = []
    for class_id in range(num_classes):
        is_class_P = pool.class_ids == class_id
        clusters = finch_star(pool.vectors[is_class_P], pool.weights[is_class_P], partition, merge_mean)
        weights_C = np.ones_like(clusters.weights_C) if is_equal else clusters.weights_C
        merged.append((class_id, clusters.centres_CD, weights_C))
    total = sum(float(weights_C.sum()) for _, _, weights_C in merged)
    normalised = [
        (class_id, centres_CD, weights_C / (weights_C.sum() if over == "class" else total))
        for class_id, centres_CD, weights_C in merged
    ]
    return _stack(normalised, pool.vectors.shape[1])


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


def contrast(ops: Ops, logits_BG: Array, is_positive_BG: Array, among_BG: Array | None = None) -> Array:
    """Return -log(sum over positives of exp / sum over all of exp), `[B]`, as a difference of log-sum-exps.

    The value of a sample without positives is meaningless; `batch_mean` leaves it out.

    Args:
        ops: Array operations.
        logits_BG: Similarities divided by the temperature.
        is_positive_BG: Mask of each sample's positives, which the term pulls it to.
        among_BG: Mask of the prototypes in the second sum, positives included; `[1, G]` if equal for all samples; all
            prototypes if None.
    """
    return ops.logsumexp(logits_BG, among_BG) - ops.logsumexp(logits_BG, is_positive_BG)


def square_distance(step: ClientStep, prototypes: Prototypes) -> Array:
    """Return the squared difference of each feature and the mean of its class's prototypes, `[B, D]`."""
    gap_BD: Array = step.features_BD - prototypes.class_means_MD[step.labels_B]
    return gap_BD**2


def has_class(step: ClientStep, prototypes: Prototypes) -> Array:
    """Return the mask `[B]` of samples whose class has a prototype."""
    return prototypes.class_sizes_M[step.labels_B] > 0


def has_positives(step: ClientStep, is_positive_BG: Array) -> Array:
    """Return the mask `[B]` of samples that prototype terms apply to.

    The mask excludes samples whose class has no prototype, and zero features: these have no direction, and the gradient of
    their cosine is one over the floor of the norm.
    """
    return is_positive_BG.any(-1) & (step.ops.row_norm(step.features_BD) > MIN_FEATURE_NORM)


def batch_mean(ops: Ops, values_B: Array, applies_B: Array) -> Array:
    """Return the mean over the whole batch; a sample that the term does not apply to counts as 0."""
    return ops.where(applies_B, values_B, 0.0).mean()
