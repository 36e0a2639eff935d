"""Exchange of prototypes: sets that clients make of their samples, and the global set that the server makes of them.

A client makes its set under its trained model, the aggregator makes the global set of the cohort's after the fold, and sends
it with the next task. docs/algorithms.md, chapter 1, has the rules.

Shape legend: N samples of a client, B batch, D feature size, M classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedplcc.shared.methods.parts.part import Part
from fedplcc.shared.methods.step import Array, Ops, Prototypes
from fedplcc.shared.types import Comparison, FloatArray, IntArray, PrototypeSet

# The aggregator's clustering compares every two rows of a class, each with D products, and sample counts are only claims of
# the sender: the rows themselves are therefore bounded. FINCH joins every row to a neighbour, so a cluster has at least two
# members (or is a class of one sample): 8192 samples of a class give at most 4096 rows in the finest partition, and tens in
# the last one.
MAX_ROWS_PER_CLASS = 4096
"""Most prototypes of one class in an uploaded set."""
MAX_ROWS = 65536
"""Most prototypes of an uploaded set."""
MAX_PAIRS = 2**32
"""Most pairs of prototypes that a round's clustering compares, over all classes: about two minutes on one core for 512
features. Rows that are made to be almost equal cost up to fifty times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Data that leave the client besides its model."""

    prototypes: PrototypeSet
    num_excluded: int = 0
    """Samples that no prototype represents: zero features, clusters below the minimum size."""


Scores = Callable[[Ops, Array, Array, Prototypes | None, Any], Array]
"""`(ops, features_BD, logits_BM, prototypes, config) -> [B, M]`, of which the largest wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeExchange(Part):
    """Prototypes of a method.

    Attributes:
        kind: Kind of the set that a client uploads.
        report: `(features_ND, labels_N, num_classes, config) -> Report` under the final local weights.
        merge: `(sets, num_classes, config) -> set`: the global set from the cohort's sets in client-id order.
        carry: `(made, previous, num_classes, config) -> set`: the global set from what `merge` made and from that of the
            round before, for methods that use it. Not called where that one is empty, as it is in round 1.
        comparison: How prototypes are compared, for who draws them.
        weights_are_counts: Whether uploaded weights are sample counts that must add up (docs/algorithms.md, rule 1.7).
        has_noise: Whether the set is a release with noise, the method's private form. A class may then stand in it that the
            client has not, and weights are no counts.
        scores: By which a client's own model names classes; the prototypes are those that the round came to. None for the
            logits.
        own_scores: As `scores`, where a client's models choose among the classes of its own images
            (`evaluation.own_classes`). None for the logits.
    """

    kind: str
    report: Callable[[FloatArray, IntArray, int, Any], Report]
    merge: Callable[[Sequence[PrototypeSet], int, Any], PrototypeSet]
    carry: Callable[[PrototypeSet, PrototypeSet, int, Any], PrototypeSet] | None = None
    comparison: Comparison = "cosine"
    weights_are_counts: bool = False
    has_noise: bool = False
    scores: Scores | None = None
    own_scores: Scores | None = None

    def merged(
        self, sets: Sequence[PrototypeSet], previous: PrototypeSet, num_classes: int, config: Any
    ) -> PrototypeSet:
        """Return the global set of a round.

        Args:
            sets: The cohort's sets in client-id order.
            previous: The global set that the round before committed; empty in round 1.
            num_classes: M.
            config: The hyper-parameters.
        """
        made = self.merge(sets, num_classes, config)
        return made if self.carry is None or not len(previous) else self.carry(made, previous, num_classes, config)


def per_class_counts(class_ids: IntArray, num_classes: int) -> IntArray:
    """Return the number of entries of each class, int64 `[M]`."""
    return np.bincount(class_ids, minlength=num_classes).astype(np.int64)


def class_means(prototypes: PrototypeSet, num_classes: int) -> FloatArray:
    """Return the plain mean of each class's prototypes, float32 `[M, D]` rounded once; zeros for a class without any."""
    means_MD = np.zeros((num_classes, prototypes.vectors.shape[1]))
    for class_id in np.unique(prototypes.class_ids):
        means_MD[class_id] = prototypes.vectors[prototypes.class_ids == class_id].mean(0, dtype=np.float64)
    return means_MD.astype(np.float32)


def most_rows_per_class(num_classes: int, num_clients: int) -> int:
    """Return how many prototypes of a class each client may upload, so that a round compares at most `MAX_PAIRS` pairs.

    One is allowed in any case.

    Args:
        num_classes: M.
        num_clients: K, the clients whose prototypes a round clusters.
    """
    return min(MAX_ROWS_PER_CLASS, max(1, math.isqrt(MAX_PAIRS // num_classes) // num_clients))


def excess_rows(prototypes: PrototypeSet, num_classes: int, max_per_class: int) -> str | None:
    """Return the sentence for a set with too many prototypes to upload, or None.

    Args:
        prototypes: The set; its class ids lie in [0, M).
        num_classes: M.
        max_per_class: Most prototypes of a class that the run allows.
    """
    if len(prototypes) > MAX_ROWS:
        return f"{len(prototypes)} prototypes, at most {MAX_ROWS}"
    counts_M = per_class_counts(prototypes.class_ids, num_classes)
    largest = int(counts_M.argmax())
    if counts_M[largest] > max_per_class:
        limit = f"{max_per_class} (admission.max_prototypes_per_class)"
        return f"{counts_M[largest]} prototypes of class {largest}, at most {limit}"
    return None
