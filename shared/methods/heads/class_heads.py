"""Linear heads in closed form, of the sums of features by class: nearest means, linear discriminants, ridge regression.

docs/algorithms.md, rule 26.3. On a server the arithmetic is that of exact_maths.py, so a head has the same bytes on
any machine; a client that scores many heads of its own takes LAPACK's.

Shape legend: N samples, D feature size, M classes, C classes that have samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, full_product, log
from fedplcc.shared.methods.arithmetic.exact_solving import NotPositive, solved
from fedplcc.shared.methods.heads.creff_matching import Head
from fedplcc.shared.types import FloatArray, IntArray

Kind = Literal["means", "lda", "ridge"]
"""How a head is made of sums."""
ABSENT = -1e9
"""Bias of a class without a sample, whose weights are 0: it is never predicted."""


@dataclass(frozen=True, slots=True)
class ClassSums:
    """Sums over samples, or over weighted ones: what a head is made of."""

    counts_M: DoubleArray
    sums_MD: DoubleArray
    moment_DD: DoubleArray | None
    """Sum of z z^T over the samples of all classes; None where only class means are wanted."""

    def plus(self, other: ClassSums, factor: float = 1.0) -> ClassSums:
        """Return these sums and `factor` times the others."""
        moment_DD = None
        if self.moment_DD is not None and other.moment_DD is not None:
            moment_DD = self.moment_DD + factor * other.moment_DD
        return ClassSums(self.counts_M + factor * other.counts_M, self.sums_MD + factor * other.sums_MD, moment_DD)


@dataclass(frozen=True, slots=True)
class Algebra:
    """Matrix product and solution of linear equations; the latter raises NotPositive or LinAlgError."""

    product: Callable[[DoubleArray, DoubleArray], DoubleArray]
    solve: Callable[[DoubleArray, DoubleArray], DoubleArray]


def _product(x_MK: DoubleArray, y_KN: DoubleArray) -> DoubleArray:
    return x_MK @ y_KN


def _solution(matrix_DD: DoubleArray, right_DN: DoubleArray) -> DoubleArray:
    return np.asarray(np.linalg.solve(matrix_DD, right_DN), np.float64)


EXACT = Algebra(full_product, solved)
"""The same bits on any machine."""
FAST = Algebra(_product, _solution)
"""BLAS's and LAPACK's: ten times as fast."""


def sums_of(
    features_ND: FloatArray | DoubleArray, labels_N: IntArray, num_classes: int, *, has_moment: bool
) -> ClassSums:
    """Return the sums of samples, in float64."""
    wide_ND = features_ND.astype(np.float64)
    is_class_NM = (labels_N[:, None] == np.arange(num_classes)).astype(np.float64)
    return ClassSums(is_class_NM.sum(0), is_class_NM.T @ wide_ND, wide_ND.T @ wide_ND if has_moment else None)


@dataclass(frozen=True, slots=True)
class Classes:
    """Number and mean of the samples of each class, and how they scatter around it."""

    counts_M: DoubleArray
    means_MD: DoubleArray
    """Zeros for a class without samples."""
    scatter_DD: DoubleArray | None
    """Sum over all samples of (z - mean)(z - mean)^T, the mean being that of the sample's class."""

    @classmethod
    def of(cls, sums: ClassSums, algebra: Algebra = EXACT) -> Classes:
        """Return what these sums say."""
        is_there_M, means_MD = sums.counts_M > 0, np.zeros_like(sums.sums_MD)
        counts_C1, sums_CD = sums.counts_M[is_there_M, None], sums.sums_MD[is_there_M]
        means_MD[is_there_M] = sums_CD / counts_C1
        if sums.moment_DD is None:
            return cls(sums.counts_M, means_MD, None)
        rows_CD = sums_CD / np.sqrt(counts_C1)
        scatter_DD = sums.moment_DD - algebra.product(np.ascontiguousarray(rows_CD.T), rows_CD)
        return cls(sums.counts_M, means_MD, scatter_DD)

    @property
    def sums(self) -> ClassSums:
        """The sums that say this."""
        sums_MD, moment_DD = self.counts_M[:, None] * self.means_MD, None
        if self.scatter_DD is not None:
            moment_DD = self.scatter_DD + sums_MD.T @ self.means_MD
        return ClassSums(self.counts_M, sums_MD, moment_DD)


def linear_head(
    classes: Classes, kind: Kind, shrinkage: float, *, is_balanced: bool = False, algebra: Algebra = EXACT
) -> Head:
    """Return the head that tells these classes apart; one without a sample is never predicted.

    Args:
        classes: Without any sample the head's weights are 0.
        kind: "means" for the nearest class mean, "lda" for Gaussian classes of one covariance, "ridge" for one-hot targets.
        shrinkage: Weight of the mean eigenvalue: beside the covariance, to which 1 - shrinkage is left ("lda"), or added to
            the centred second moment ("ridge"). "means" has none.
        is_balanced: Whether classes weigh alike, however many samples they have. The scatter within them is not known of
            each, and stays that of all.
        algebra: What products and solutions are made with.
    """
    is_there_M = classes.counts_M > 0
    head = Head(np.zeros_like(classes.means_MD), np.where(is_there_M, 0.0, ABSENT))
    if not is_there_M.any():
        return head
    means_CD, counts_C = classes.means_MD[is_there_M], classes.counts_M[is_there_M]
    num = math.fsum(counts_C)
    weights_C = np.full(len(counts_C), num / len(counts_C)) if is_balanced else counts_C
    center_D = np.zeros(means_CD.shape[1])
    for weight, mean_D in zip((weights_C / num).tolist(), means_CD, strict=True):
        center_D = center_D + weight * mean_D
    moved_CD = means_CD - center_D
    if kind == "means":
        weight_CD, bias_C = moved_CD, -0.5 * _row_sums(moved_CD * (means_CD + center_D))
    elif kind == "lda":
        assert classes.scatter_DD is not None
        covariance_DD = classes.scatter_DD / num
        added = shrinkage * mean_eigenvalue(covariance_DD)
        weight_CD = _solved((1 - shrinkage) * covariance_DD, added, moved_CD, algebra)
        bias_C = log(weights_C / num) - 0.5 * _row_sums(weight_CD * (means_CD + center_D))
    else:
        assert classes.scatter_DD is not None
        between_CD = np.sqrt(weights_C)[:, None] * moved_CD
        moment_DD = classes.scatter_DD + algebra.product(np.ascontiguousarray(between_CD.T), between_CD)
        added = shrinkage * mean_eigenvalue(moment_DD)
        weight_CD = _solved(moment_DD, added, weights_C[:, None] * moved_CD, algebra)
        bias_C = weights_C / num - _row_sums(weight_CD * center_D)
    head.weight_MD[is_there_M], head.bias_M[is_there_M] = weight_CD, bias_C
    return head


def mean_eigenvalue(matrix_DD: DoubleArray) -> float:
    """Return trace(A) / D; 1 where the trace is not positive."""
    return max(math.fsum(np.diagonal(matrix_DD)), 0.0) / len(matrix_DD) or 1.0


def _solved(matrix_DD: DoubleArray, added: float, right_CD: DoubleArray, algebra: Algebra) -> DoubleArray:
    """Return rows x with (A + a 1) x = b; of the diagonal alone where that is not positive definite in float64.

    A is changed.
    """
    places = np.arange(len(matrix_DD))
    matrix_DD[places, places] += added
    try:
        return np.ascontiguousarray(algebra.solve(matrix_DD, np.ascontiguousarray(right_CD.T)).T)
    except (NotPositive, np.linalg.LinAlgError):
        rows_CD: DoubleArray = right_CD / np.maximum(np.diagonal(matrix_DD), added)
        return rows_CD


def _row_sums(values_CD: DoubleArray) -> DoubleArray:
    """Return the exactly rounded sum of each row, `[C]`."""
    return np.array([math.fsum(row) for row in values_CD.tolist()])
