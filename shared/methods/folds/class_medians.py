"""Median of class means: one set of class sums in the place of the clients', of which one that lies moves no number far.

The mean of a class is, number by number, the median of the means of the clients that have samples of it; so is the scatter
within classes, for each sample, of all clients' (docs/algorithms.md, rule 26.8). Each client counts once. From these and the
sum of all counts come sums as one client could have sent them, which the method's step then takes. A median of scatters may
not be positive definite; what it is added to (the shrinkage) mostly makes it so, and the head has its own way out.

All is elementwise, in float64: the same bytes on any machine and in any order of the clients.

Shape legend: K clients, D feature size, M classes, P numbers of the upper triangle of a D x D matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.arithmetic.fixed_point import narrow, rounded, widened
from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.heads import classsums
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import ServerResult, ServerRound

MOST_NUMBERS = 1 << 24
"""Most numbers of the clients' second moments that are in memory at once: 128 MiB."""

Uploads = Iterable[Mapping[str, ArrayGroup]]


def with_medians(part: ServerArrays) -> ServerArrays:
    """Return the part of class sums with medians in the place of sums; another part as it is."""
    if part.step is not classsums.server_step:
        return part

    def step(step: ServerRound, config: Any) -> ServerResult:
        return part.step(replace(step, uploads=[median_upload(step.uploads)]), config)

    return replace(part, step=step)


def median_upload(uploads: Uploads) -> Mapping[str, ArrayGroup]:
    """Return class sums as one client could have sent them that has the median of the clients' class means.

    Args:
        uploads: The clients' groups, read several times where second moments are many.
    """
    counts_KM = np.stack([each[classsums.SUMS]["counts"] for each in uploads])
    sums = [each[classsums.SUMS]["sums"] for each in uploads]
    counts_M = counts_KM.sum(0)
    means_MD = _class_means(counts_KM, sums)
    sums_MD = counts_M[:, None] * means_MD
    made: dict[str, np.ndarray] = {
        "counts": counts_M,
        "sums": narrow(sums_MD) if sums[0].dtype == np.float32 else rounded(sums_MD),
    }
    if any("moment" in each[classsums.SUMS] for each in uploads):
        num_triangle = sums[0].shape[1] * (sums[0].shape[1] + 1) // 2
        made["moment"] = np.empty(num_triangle, np.int64)
        sent = _Sums(counts_KM.astype(np.float64), [widened(each) for each in sums])
        for places, moments in _moments(uploads, num_triangle, len(sums)):
            scatters = [sent.scatter(number, moment, places) for number, moment in enumerate(moments)]
            per_sample = median_of(np.stack(scatters)) * float(counts_M.sum())
            made["moment"][places] = rounded(per_sample + _outer(counts_M.astype(np.float64), means_MD, places))
    return {classsums.SUMS: made}


def median_of(values_KE: DoubleArray) -> DoubleArray:
    """Return the median of each column, of an even number the mean of the two in the middle."""
    ascending_KE, num = np.sort(values_KE, axis=0), len(values_KE)
    middle_E: DoubleArray = (ascending_KE[(num - 1) // 2] + ascending_KE[num // 2]) / 2
    return middle_E


def _class_means(counts_KM: np.ndarray, sums: list[np.ndarray]) -> DoubleArray:
    """Return the median of each class's means over the clients that have samples of it; zeros for a class of nobody."""
    means_MD = np.zeros(sums[0].shape)
    for label in range(len(means_MD)):
        having = np.flatnonzero(counts_KM[:, label])
        if len(having):
            means_MD[label] = median_of(
                np.stack([widened(sums[client][label]) / counts_KM[client, label] for client in having.tolist()])
            )
    return means_MD


@dataclass(frozen=True, slots=True)
class _Sums:
    """Counts and class sums of all clients."""

    counts_KM: DoubleArray
    sums: list[DoubleArray]

    def scatter(self, client: int, moment: DoubleArray, places: slice) -> DoubleArray:
        """Return a client's scatter within classes for each of its samples, at these places of the triangle."""
        counts_M = self.counts_KM[client]
        means_MD = self.sums[client] / np.maximum(counts_M, 1.0)[:, None]
        found: DoubleArray = (moment - _outer(counts_M, means_MD, places)) / max(float(counts_M.sum()), 1.0)
        return found


def _outer(counts_M: DoubleArray, means_MD: DoubleArray, places: slice) -> DoubleArray:
    """Return sum_m n_m mean_m mean_m^T at these places of its upper triangle, the classes added in their order."""
    rows, columns = (each[places] for each in np.triu_indices(means_MD.shape[1]))
    total = np.zeros(len(rows))
    for count, mean_D in zip(counts_M.tolist(), means_MD, strict=True):
        if count:
            total += count * mean_D[rows] * mean_D[columns]
    return total


def _moments(uploads: Uploads, num_triangle: int, num_clients: int) -> Iterator[tuple[slice, list[DoubleArray]]]:
    """Yield places of the triangle, and the second moment of each client there."""
    size = max(1, MOST_NUMBERS // num_clients)
    for first in range(0, num_triangle, size):
        places = slice(first, min(first + size, num_triangle))
        yield places, [widened(each[classsums.SUMS]["moment"][places]) for each in uploads]
