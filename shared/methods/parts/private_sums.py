"""Private sums: class sums and counts that leave a client with noise, and the head or the means that are made of them.

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

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.arithmetic.fixed_point import Total, is_too_large, rounded
from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema
from fedplcc.shared.methods.heads.class_heads import ABSENT
from fedplcc.shared.methods.heads.creff_matching import Head
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.parts.part import Part, ServerResult, ServerRound
from fedplcc.shared.types import PrototypeSet

SUMS, GLOBAL_SUMS = "class_sums", "global_sums"
"""Groups: what clients upload, and what the server keeps."""
LEAST_SIGNAL = 2.0
"""Deviations above that of noise alone, of a count or of a sum's squared length, from which a class counts as seen."""
SPREAD = 0.04
"""Relative variance, from class to class, of the squared length that an image adds to its class's sum."""
COUNT_RATIO = 4.0
"""Deviation of the noise on counts in units of that on sums, each in units of what a record moves."""


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
        return {GLOBAL_SUMS: {"counts": ("F32", (num_classes,)), "sums": ("F32", (num_classes, feature_dim))}}

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
        head = private_head(
            totals["sums"].value,
            totals["counts"].value,
            num_clients * (self.noise * self.clip) ** 2,
            num_clients * (COUNT_RATIO * self.noise) ** 2,
        )
        kept = {name: to_float32(total.value) for name, total in totals.items()}
        return ServerResult(arrays={GLOBAL_SUMS: kept}, head=head_tensors(head, step.head))


def quanta_of(sums_MD: DoubleArray, counts_M: DoubleArray) -> ArrayGroup:
    """Return a release as it is uploaded: whole multiples of 2^-32."""
    return {"counts": rounded(counts_M), "sums": rounded(sums_MD)}


def private_means(sums_MD: DoubleArray, counts_M: DoubleArray, noise: float, num_records: int) -> PrototypeSet:
    """Return the means of a client's release, of the classes whose count stands out of its noise; what is made of a release
    is free.

    Args:
        sums_MD: Released sums.
        counts_M: Released counts.
        noise: z.
        num_records: The client's number of records, which is public: a count is no larger, and no more classes have means.
    """
    likely = np.argsort(-counts_M, kind="stable")[:num_records]
    present = np.sort(likely[counts_M[likely] > max(1.0, LEAST_SIGNAL * COUNT_RATIO * noise)])
    if not len(present):
        return PrototypeSet.empty(sums_MD.shape[1])
    vectors_PD = sums_MD[present] / counts_M[present, None]
    return PrototypeSet.of(to_float32(vectors_PD), present, np.minimum(np.rint(counts_M[present]), num_records))


def private_head(sums_MD: DoubleArray, counts_M: DoubleArray, variance: float, count_variance: float) -> Head:
    """Return the head that predicts the class whose sum, as long as 1, points the most the same way; it has no bias.

    Features are compared less the mean of their own D numbers, as they were summed. The length of a sum without its noise is
    told by its square, less what the noise adds, and by its class's count: sums of one backbone's features are about as long
    for each image. The two squares are weighed by their variances; that of counts is first drawn towards the mean of all
    as far as noise explains their spread (Efron and Morris, JASA 68, 1973). A class of which neither stands out is never
    predicted, unless none does.

    Args:
        sums_MD: Sums of all clients.
        counts_M: Counts of all clients.
        variance: Of the noise on each number of the sums, of all clients together.
        count_variance: Of that on each count.
    """
    dim = sums_MD.shape[1]
    rows = [row - math.fsum(row) / dim for row in sums_MD]
    least = LEAST_SIGNAL * variance * math.sqrt(2 * dim)
    squares = [math.fsum((row * row).tolist()) - dim * variance for row in rows]
    deviation = math.sqrt(count_variance)
    counts = _drawn_together([max(count, deviation) for count in counts_M.tolist()], count_variance)
    per_image = max(math.fsum(squares), least) / max(math.fsum(count * count for count in counts), 1.0)
    is_seen = [
        square > least or count > LEAST_SIGNAL * deviation
        for square, count in zip(squares, counts_M.tolist(), strict=True)
    ]
    if not any(is_seen):
        is_seen = [True] * len(rows)
    head = Head(np.zeros_like(sums_MD), np.where(is_seen, 0.0, ABSENT))
    for label, (square, count) in enumerate(zip(squares, counts, strict=True)):
        if is_seen[label]:
            expected = per_image * count * count
            of_square = (2 * dim * variance * variance + 4 * expected * variance) / (expected * expected)
            of_count = 4 * count_variance / (count * count) + SPREAD
            share = of_count / (of_square + of_count)
            head.weight_MD[label] = rows[label] / math.sqrt(max(share * square + (1 - share) * expected, least))
    return head


def _drawn_together(counts: Sequence[float], variance: float) -> list[float]:
    """Return counts drawn towards their mean, by the share of their spread that is noise of this variance."""
    mean = math.fsum(counts) / len(counts)
    spread = math.fsum((count - mean) ** 2 for count in counts) / len(counts)
    own = max(0.0, 1 - variance / spread) if spread else 0.0
    return [mean + own * (count - mean) for count in counts]


def head_tensors(head: Head, like: ArrayGroup) -> ArrayGroup:
    """Return a head's tensors by the names of those that it replaces."""
    weight_MD, bias_M = to_float32(head.weight_MD), to_float32(head.bias_M)
    return {name: weight_MD if tensor.ndim == 2 else bias_M for name, tensor in like.items()}
