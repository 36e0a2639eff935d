"""Heads in closed form of sums less a fold, as far as scores of the fold's own samples need them.

A grid of shrinkages on folds asks for as many heads, each the solution of D equations. Here one eigendecomposition of the
scatter serves all of them: a multiple of the identity keeps the eigenvectors, and a fold takes away a matrix of no more
rank than it has samples (Woodbury's identity; docs/algorithms.md, rule 26.4). The logits are those of class_heads.py's heads
but for rounding. The arithmetic is LAPACK's, for what only a client uses.

Shape legend: N samples, F samples of a fold, D feature size, K size of the basis, M classes, C classes with samples left,
R rows of the fold's samples and of the means, U rows of the low rank, S shrinkages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.heads.class_heads import ABSENT, FAST, Classes, ClassSums, Kind, linear_head, sums_of
from fedplcc.shared.types import FloatArray, IntArray

_NONE = 1e-12
"""Share of the largest number of its kind below which rounding alone has left one."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Samples, and sums that they are part of, in the basis of the eigenvectors of the scatter within classes."""

    samples_NK: DoubleArray
    labels_N: IntArray
    counts_M: DoubleArray
    means_MK: DoubleArray
    scatter_K: DoubleArray | None
    """Eigenvalues; None without a second moment."""
    dim: int
    """D: what the trace is divided by."""

    @classmethod
    def of(cls, classes: Classes, features_ND: FloatArray | DoubleArray, labels_N: IntArray) -> Spectrum:
        """Return what these classes, of which the samples are a part, are in their basis."""
        wide_ND, dim = features_ND.astype(np.float64), features_ND.shape[1]
        if classes.scatter_DD is None:
            return cls(wide_ND, labels_N, classes.counts_M, classes.means_MD, None, dim)
        values_K, basis_DK = np.linalg.eigh(classes.scatter_DD)
        means_MK, scatter_K = classes.means_MD @ basis_DK, np.maximum(values_K, 0.0)
        return cls(wide_ND @ basis_DK, labels_N, classes.counts_M, means_MK, scatter_K, dim)

    @classmethod
    def alone(cls, features_ND: FloatArray, labels_N: IntArray, num_classes: int, *, has_moment: bool) -> Spectrum:
        """Return samples that nobody else's sums are added to; fewer than D have a basis of their own number."""
        dim, samples_NK = features_ND.shape[1], features_ND.astype(np.float64)
        if has_moment and len(samples_NK) < dim:
            samples_NK = _in_their_span(samples_NK)
        sums = sums_of(samples_NK, labels_N, num_classes, has_moment=has_moment)
        return replace(cls.of(Classes.of(sums, FAST), samples_NK, labels_N), dim=dim)

    def fold_logits(
        self, fold_F: IntArray, kind: Kind, shrinkages: Sequence[float], *, is_balanced: bool = False
    ) -> DoubleArray:
        """Return logits `[S, F, M]` of samples by heads of the sums without them.

        Args:
            fold_F: Numbers of the samples.
            kind: How the heads are made.
            shrinkages: A head for each; see `linear_head`.
            is_balanced: Whether classes weigh alike.
        """
        labels_F, num_classes = self.labels_N[fold_F], len(self.counts_M)
        is_of_FM = (labels_F[:, None] == np.arange(num_classes)).astype(np.float64)
        left_M = self.counts_M - is_of_FM.sum(0)
        classes_C = np.flatnonzero(left_M > 0.5)
        logits_SFM = np.full((len(shrinkages), len(fold_F), num_classes), ABSENT)
        if not len(classes_C):
            return logits_SFM
        if len(fold_F) > self.samples_NK.shape[1] and kind != "means":
            return self._solved_logits(fold_F, is_of_FM, kind, shrinkages, is_balanced=is_balanced)
        fold = _Fold.of(self, self.samples_NK[fold_F], is_of_FM, left_M, classes_C, is_balanced=is_balanced)
        for logits_FM, shrinkage in zip(logits_SFM, shrinkages, strict=True):
            logits_FM[:, classes_C] = fold.logits(kind, shrinkage)
        return logits_SFM

    def _solved_logits(
        self, fold_F: IntArray, is_of_FM: DoubleArray, kind: Kind, shrinkages: Sequence[float], *, is_balanced: bool
    ) -> DoubleArray:
        """Return logits by heads that are solved: less work where a fold has more samples than there are equations."""
        assert self.scatter_K is not None
        samples_FK, sums_MK = self.samples_NK[fold_F], self.counts_M[:, None] * self.means_MK
        moment_KK = np.diag(self.scatter_K) + sums_MK.T @ self.means_MK - samples_FK.T @ samples_FK
        left = ClassSums(self.counts_M - is_of_FM.sum(0), sums_MK - is_of_FM.T @ samples_FK, moment_KK)
        classes = Classes.of(left, FAST)
        heads = [linear_head(classes, kind, each, is_balanced=is_balanced, algebra=FAST) for each in shrinkages]
        return np.array([samples_FK @ head.weight_MD.T + head.bias_M for head in heads])


@dataclass(frozen=True, slots=True)
class _Fold:
    """A fold and what is left without it. All vectors are sums of rows: the fold's samples, centred, and the means."""

    spectrum: Spectrum
    rows_RK: DoubleArray
    samples_FR: DoubleArray
    """Makes the fold's samples of the rows."""
    centred_FR: DoubleArray
    """Makes them less the mean of their class."""
    means_CR: DoubleArray
    """Makes the means of what is left."""
    center_R: DoubleArray
    """Makes the weighted mean of these."""
    within_FF: DoubleArray
    """Inverse of C, where the fold takes X^T C X from the scatter, with rows X less the mean of their class."""
    priors_C: DoubleArray
    num_left: float
    trace: float
    """Of the scatter that is left."""
    least_trace: float
    """What rounding makes of none."""

    @classmethod
    def of(
        cls,
        spectrum: Spectrum,
        samples_FK: DoubleArray,
        is_of_FM: DoubleArray,
        left_M: DoubleArray,
        classes_C: IntArray,
        *,
        is_balanced: bool,
    ) -> _Fold:
        num, num_classes = is_of_FM.shape
        is_of_FC, left_C = is_of_FM[:, classes_C], left_M[classes_C]
        rows_RK = np.concatenate([samples_FK - is_of_FM @ spectrum.means_MK, spectrum.means_MK])
        centred_FR = np.eye(num, num + num_classes)
        samples_FR = np.concatenate([np.eye(num), is_of_FM], axis=1)
        means_CR = np.concatenate([-is_of_FC.T / left_C[:, None], np.eye(num_classes)[classes_C]], axis=1)
        num_left = float(left_C.sum())
        priors_C = np.full(len(left_C), 1 / len(left_C)) if is_balanced else left_C / num_left
        within_FF = np.eye(num) - (is_of_FC / spectrum.counts_M[classes_C]) @ is_of_FC.T
        trace = whole = 0.0
        if spectrum.scatter_K is not None:
            centred_FK, whole = rows_RK[:num], float(spectrum.scatter_K.sum())
            taken = np.square(centred_FK).sum() + (np.square(is_of_FC.T @ centred_FK).sum(1) / left_C).sum()
            trace = whole - float(taken)
        return cls(
            spectrum,
            rows_RK,
            samples_FR,
            centred_FR,
            means_CR,
            priors_C @ means_CR,
            within_FF,
            priors_C,
            num_left,
            trace,
            _NONE * (whole + num_left * float(np.square(spectrum.means_MK).sum())),
        )

    def logits(self, kind: Kind, shrinkage: float) -> DoubleArray:
        """Return logits `[F, C]` by the head of one shrinkage."""
        moved_CR = self.means_CR - self.center_R
        weights_C = self.num_left * self.priors_C
        if kind == "means":
            products_RR = self.rows_RK @ self.rows_RK.T
            return self._biased(products_RR @ moved_CR.T, np.zeros_like(self.priors_C))
        if kind == "lda":
            added = shrinkage * self._mean_eigenvalue(self.trace / self.num_left)
            solved_RC = self._solved(moved_CR, self.centred_FR, self.within_FF, added, (1 - shrinkage) / self.num_left)
            return self._biased(solved_RC, np.log(self.priors_C))
        between_CR = np.sqrt(weights_C)[:, None] * moved_CR
        num, num_all = len(self.within_FF), len(self.within_FF) + len(between_CR)
        inverse_UU = np.zeros((num_all, num_all))
        inverse_UU[:num, :num], inverse_UU[num:, num:] = self.within_FF, -np.eye(len(between_CR))
        trace = self.trace + float(np.square(between_CR @ self.rows_RK).sum())
        added = shrinkage * self._mean_eigenvalue(trace)
        low_UR = np.concatenate([self.centred_FR, between_CR])
        solved_RC = self._solved(weights_C[:, None] * moved_CR, low_UR, inverse_UU, added, 1.0)
        found_FC: DoubleArray = self.samples_FR @ solved_RC + (self.priors_C - self.center_R @ solved_RC)
        return found_FC

    def _mean_eigenvalue(self, trace: float) -> float:
        """Return trace / D; 1 where rounding alone has left one."""
        return trace / self.spectrum.dim if trace > self.least_trace else 1.0

    def _biased(self, solved_RC: DoubleArray, prior_C: DoubleArray) -> DoubleArray:
        """Return the logits of discriminants: w z - w (mean + center) / 2 + prior."""
        half_C = ((self.means_CR + self.center_R) * solved_RC.T).sum(1) / 2
        found_FC: DoubleArray = self.samples_FR @ solved_RC + (prior_C - half_C)
        return found_FC

    def _solved(
        self, right_CR: DoubleArray, low_UR: DoubleArray, inverse_UU: DoubleArray, added: float, factor: float
    ) -> DoubleArray:
        """Return products `[R, C]` of the rows with x_c: (f (T - U^T A U) + a 1) x_c = b_c.

        Args:
            right_CR: Makes b of the rows.
            low_UR: Makes U of the rows.
            inverse_UU: Inverse of A.
            added: a.
            factor: f.
        """
        assert self.spectrum.scatter_K is not None
        scaled_RK = self.rows_RK / np.sqrt(factor * self.spectrum.scatter_K + added)
        products_RR = scaled_RK @ scaled_RK.T
        right_RC, low_RU = products_RR @ right_CR.T, products_RR @ low_UR.T
        inner_UU, inner_UC = inverse_UU - factor * low_UR @ low_RU, low_UR @ right_RC
        try:
            taken_UC = np.linalg.solve(inner_UU, inner_UC)
        except np.linalg.LinAlgError:  # less is left of the scatter than float64 tells from nothing
            taken_UC = np.linalg.lstsq(inner_UU, inner_UC)[0]
        found_RC: DoubleArray = right_RC + factor * low_RU @ taken_UC
        return found_RC


def _in_their_span(wide_ND: DoubleArray) -> DoubleArray:
    """Return the samples' coordinates `[N, K]` in an orthonormal basis of what they span."""
    values_N, vectors_NN = np.linalg.eigh(wide_ND @ wide_ND.T)
    kept = values_N > _NONE * max(float(values_N.max(initial=0.0)), 0.0)
    coordinates_NK: DoubleArray = vectors_NN[:, kept] * np.sqrt(values_N[kept])
    return coordinates_NK
