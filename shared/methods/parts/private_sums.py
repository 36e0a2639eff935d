"""Private sums: class sums and counts that leave a client with noise, and the head that the server makes of them.

What a release costs and how it is made stands in fedplcc.shared.privacy; the noise is made by the trainer, which has the
key. What is made of a release is free: it has no more of any image than the release.

Shape legend: D feature size, M classes, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema
from fedplcc.shared.methods.class_heads import ABSENT
from fedplcc.shared.methods.creff_matching import Head
from fedplcc.shared.methods.exact_maths import DoubleArray
from fedplcc.shared.methods.fixed_point import Total, is_too_large, rounded, widened
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.parts.part import Part, ServerResult, ServerRound

SUMS, GLOBAL_SUMS = "class_sums", "global_sums"
"""Groups: what clients upload, and what the server keeps."""
LEAST_SIGNAL = 2.0
"""Deviations of a sum's squared length above that of noise alone, from which a class counts as seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSums(Part):
    """Sums with noise in the place of all that a method makes of features.

    Attributes:
        clip: C, the largest L2 norm with which a record counts.
        noise: z; sums have noise of deviation z C for each client, counts of 4 z.
    """

    clip: float
    noise: float

    def uploads(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return {SUMS: {"counts": ("I64", (num_classes,)), "sums": ("I64", (num_classes, feature_dim))}}

    def server_arrays(self, config: Any, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
        return {GLOBAL_SUMS: {**self.uploads(config, num_classes, feature_dim)[SUMS], "shift": ("I64", (1,))}}

    def makes_model(self, config: Any) -> bool:
        return True

    def shares_model(self, config: Any) -> bool:
        return False

    def upload_fault(self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Any) -> str | None:
        if any(is_too_large(array) for array in uploads[SUMS].values()):
            return "a class sum or a count is 2^30 or more: no clipped features with this noise have such sums"
        return None

    def server_step(self, step: ServerRound, config: Any) -> ServerResult:
        totals = {"counts": Total.zero((step.num_classes,)), "sums": Total.zero((step.num_classes, step.feature_dim))}
        num_clients = 0
        for upload in step.uploads:
            num_clients += 1
            for name, total in totals.items():
                total.add(upload[SUMS][name])
        head = private_head(totals["sums"].value, num_clients * (self.noise * self.clip) ** 2)
        shift = max(total.shift for total in totals.values())
        kept: dict[str, np.ndarray] = {name: total.quanta(shift) for name, total in totals.items()}
        kept["shift"] = np.array([shift], np.int64)
        return ServerResult(arrays={GLOBAL_SUMS: kept}, head=_tensors(head, step.head))


def quanta_of(sums_MD: DoubleArray, counts_M: DoubleArray) -> ArrayGroup:
    """Return a release as it is uploaded: whole multiples of 2^-32."""
    return {"counts": rounded(counts_M), "sums": rounded(sums_MD)}


def read_sums(group: ArrayGroup) -> tuple[DoubleArray, DoubleArray]:
    """Return the sums `[M, D]` and counts `[M]` of an upload, in float64."""
    return widened(group["sums"]), widened(group["counts"])


def private_head(sums_MD: DoubleArray, variance: float) -> Head:
    """Return the head that predicts the class whose mean feature points the most the same way; it has no bias.

    Features are compared less the mean of their own D numbers, as they were summed. A sum of length s whose numbers have
    noise of this variance has the length sqrt(s^2 - D variance) without it, up to chance; a class whose sum does not stand
    out of the noise is never predicted, unless none does.

    Args:
        sums_MD: Sums of all clients.
        variance: Of the noise on each of their numbers, of all clients together.
    """
    dim = sums_MD.shape[1]
    rows = [row - math.fsum(row) / dim for row in sums_MD]
    squares_M = np.array([math.fsum((row * row).tolist()) for row in rows])
    signal_M = squares_M - dim * variance
    is_seen_M = signal_M > LEAST_SIGNAL * variance * math.sqrt(2 * dim)
    if not is_seen_M.any():
        is_seen_M, signal_M = squares_M > 0, squares_M
    head = Head(np.zeros_like(sums_MD), np.where(is_seen_M, 0.0, ABSENT) if is_seen_M.any() else np.zeros(len(rows)))
    for label in np.flatnonzero(is_seen_M).tolist():
        head.weight_MD[label] = rows[label] / math.sqrt(signal_M[label])
    return head


def _tensors(head: Head, like: ArrayGroup) -> ArrayGroup:
    weight_MD, bias_M = to_float32(head.weight_MD), to_float32(head.bias_M)
    return {name: weight_MD if tensor.ndim == 2 else bias_M for name, tensor in like.items()}
