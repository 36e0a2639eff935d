"""Linear heads in closed form, of the sums of features by class: nearest means, linear discriminants, ridge regression.

docs/algorithms.md, rules 25.2 to 25.4. On a server the arithmetic is that of exact_maths.py, so a head has the same bytes on
any machine; a client that scores many heads of its own takes LAPACK's.

Shape legend: N samples, D feature size, M classes, C classes that have samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedplcc.shared.methods.creff_matching import Head
from fedplcc.shared.methods.exact_maths import DoubleArray, full_product, log
from fedplcc.shared.methods.exact_solving import NotPositive, solved
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


def sums_of(features_ND: FloatArray, labels_N: IntArray, num_classes: int, *, has_moment: bool) -> ClassSums:
    """Return the sums of samples, in float64."""
    wide_ND = features_ND.astype(np.float64)
    is_class_NM = (labels_N[:, None] == np.arange(num_classes)).astype(np.float64)
    return ClassSums(is_class_NM.sum(0), is_class_NM.T @ wide_ND, wide_ND.T @ wide_ND if has_moment else None)


def scatter(sums: ClassSums, algebra: Algebra) -> DoubleArray:
    """Return the sum over all samples of (z - mean)(z - mean)^T, the mean being that of the sample's class, `[D, D]`."""
    assert sums.moment_DD is not None
    is_there_M = sums.counts_M > 0
    roots_CD = sums.sums_MD[is_there_M] / np.sqrt(sums.counts_M[is_there_M])[:, None]
    return sums.moment_DD - algebra.product(np.ascontiguousarray(roots_CD.T), roots_CD)


def balanced(sums: ClassSums, algebra: Algebra) -> ClassSums:
    """Return sums in which every class weighs alike, and all weigh as many samples as before.

    Second moments of single classes are not known: each class gets its share of the pooled scatter, as if all scattered
    alike.
    """
    is_there_M = sums.counts_M > 0
    share = float(sums.counts_M.sum()) / max(1, int(is_there_M.sum()))
    sums_MD = np.zeros_like(sums.sums_MD)
    sums_MD[is_there_M] = sums.sums_MD[is_there_M] * (share / sums.counts_M[is_there_M])[:, None]
    moment_DD = None
    if sums.moment_DD is not None:
        roots_MD = sums_MD / math.sqrt(share or 1.0)
        moment_DD = scatter(sums, algebra) + algebra.product(np.ascontiguousarray(roots_MD.T), roots_MD)
    return ClassSums(np.where(is_there_M, share, 0.0), sums_MD, moment_DD)


def linear_head(
    sums: ClassSums, kind: Kind, shrinkage: float, *, is_balanced: bool = False, algebra: Algebra = EXACT
) -> Head:
    """Return the head that these sums make; a class without a sample is never predicted.

    Args:
        sums: Of at least the classes to tell apart; without any sample the head is 0.
        kind: "means" for the nearest class mean, "lda" for Gaussian classes of one covariance, "ridge" for one-hot targets.
        shrinkage: Weight of the mean eigenvalue: beside the covariance, to which 1 - shrinkage is left ("lda"), or added to
            the centred second moment ("ridge"). "means" has none.
        is_balanced: Whether classes weigh alike, however many samples they have.
        algebra: What products and solutions are made with.
    """
    is_there_M = sums.counts_M > 0
    head = Head(np.zeros_like(sums.sums_MD), np.where(is_there_M, 0.0, ABSENT))
    if not is_there_M.any():
        return head
    if is_balanced:
        sums = balanced(sums, algebra)
    counts_C, sums_CD = sums.counts_M[is_there_M], sums.sums_MD[is_there_M]
    num = float(counts_C.sum())
    center_D = algebra.product(np.ones((1, len(counts_C))), sums_CD)[0] / num
    if kind == "ridge":
        assert sums.moment_DD is not None
        moment_DD = sums.moment_DD - num * (center_D[:, None] * center_D)
        targets_CD = sums_CD - counts_C[:, None] * center_D
        weight_CD = _solved(moment_DD, shrinkage * mean_eigenvalue(moment_DD), targets_CD, algebra)
        bias_C = counts_C / num - _row_products(weight_CD, np.broadcast_to(center_D, weight_CD.shape))
    else:
        means_CD = sums_CD / counts_C[:, None]
        weight_CD, priors_C = means_CD - center_D, np.zeros(len(counts_C))
        if kind == "lda":
            covariance_DD = scatter(sums, algebra) / num
            added = shrinkage * mean_eigenvalue(covariance_DD)
            weight_CD = _solved((1 - shrinkage) * covariance_DD, added, weight_CD, algebra)
            priors_C = log(counts_C / num)
        bias_C = priors_C - 0.5 * _row_products(weight_CD, means_CD + center_D)
    head.weight_MD[is_there_M], head.bias_M[is_there_M] = weight_CD, bias_C
    return head


def mean_eigenvalue(matrix_DD: DoubleArray) -> float:
    """Return trace(A) / D; 1 where the trace is not positive."""
    return max(math.fsum(np.diagonal(matrix_DD)), 0.0) / len(matrix_DD) or 1.0


def num_correct(head: Head, features_ND: DoubleArray, labels_N: IntArray) -> DoubleArray:
    """Return the number of samples of each class that a head predicts correctly, `[M]`."""
    predicted_N = (features_ND @ head.weight_MD.T + head.bias_M).argmax(1)
    return np.bincount(labels_N[predicted_N == labels_N], minlength=len(head.bias_M)).astype(np.float64)


def _solved(matrix_DD: DoubleArray, added: float, right_CD: DoubleArray, algebra: Algebra) -> DoubleArray:
    """Return rows x with (A + a 1) x = b; of the diagonal alone where that is not positive definite in float64."""
    matrix_DD = matrix_DD.copy()
    np.einsum("dd->d", matrix_DD)[:] += added
    try:
        return np.ascontiguousarray(algebra.solve(matrix_DD, np.ascontiguousarray(right_CD.T)).T)
    except (NotPositive, np.linalg.LinAlgError):
        rows_CD: DoubleArray = right_CD / np.maximum(np.diagonal(matrix_DD), added)
        return rows_CD


def _row_products(x_CD: DoubleArray, y_CD: DoubleArray) -> DoubleArray:
    """Return the exactly rounded sums of x y over each row, `[C]`."""
    return np.array([math.fsum(row) for row in (x_CD * y_CD).tolist()])
