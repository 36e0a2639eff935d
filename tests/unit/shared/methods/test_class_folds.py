"""Scores of folds, beside those of heads that are solved for each fold and shrinkage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.shared.methods.heads.class_folds import Spectrum
from fedplcc.shared.methods.heads.class_heads import FAST, Classes, ClassSums, Kind, linear_head, sums_of

NUM_CLASSES, DIM = 4, 9
SHRINKAGES = {"means": (0.0,), "lda": (0.02, 0.3, 1.0), "ridge": (0.001, 0.1, 3.0)}


def samples(seed: int, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels_N = np.repeat(np.arange(NUM_CLASSES), counts)
    spread_DD = rng.normal(size=(DIM, DIM))
    features_ND = rng.normal(size=(len(labels_N), DIM)) @ spread_DD + 2 * rng.normal(size=(NUM_CLASSES, DIM))[labels_N]
    return features_ND.astype(np.float32), labels_N


def sums(found: tuple[np.ndarray, np.ndarray], *, has_moment: bool = True) -> ClassSums:
    return sums_of(*found, NUM_CLASSES, has_moment=has_moment)


def expected(
    whole: ClassSums, features_FD: np.ndarray, labels_F: np.ndarray, kind: Kind, *, is_balanced: bool
) -> np.ndarray:
    fold = sums((features_FD, labels_F), has_moment=kind != "means")
    classes = Classes.of(whole.plus(fold, -1.0), FAST)
    heads = [linear_head(classes, kind, s, is_balanced=is_balanced, algebra=FAST) for s in SHRINKAGES[kind]]
    return np.array([features_FD.astype(np.float64) @ head.weight_MD.T + head.bias_M for head in heads])


@pytest.mark.parametrize("kind", ["means", "lda", "ridge"])
@pytest.mark.parametrize("is_balanced", [False, True])
@pytest.mark.parametrize("has_others", [False, True])
@given(seed=st.integers(0, 50), counts=st.lists(st.integers(0, 6), min_size=4, max_size=4), size=st.integers(1, 7))
@settings(max_examples=15, deadline=None)
def test_logits_of_a_fold_are_those_of_a_head_of_the_sums_without_it(
    kind: Kind, is_balanced: bool, has_others: bool, seed: int, counts: list[int], size: int
) -> None:
    """With and without others' sums, with classes that only the fold has, and with fewer and more samples than D."""
    mine, others = samples(seed, counts), samples(seed + 100, [9, 0, 30, 4])
    num, has_moment = len(mine[1]), kind != "means"
    fold_F = np.sort(np.random.default_rng(seed).permutation(num)[:size])
    whole = sums(mine, has_moment=has_moment)
    if has_others:
        whole = whole.plus(sums(others, has_moment=has_moment))
        spectrum = Spectrum.of(Classes.of(whole, FAST), *mine)
    else:
        spectrum = Spectrum.alone(*mine, NUM_CLASSES, has_moment=has_moment)
    found = spectrum.fold_logits(fold_F, kind, SHRINKAGES[kind], is_balanced=is_balanced)
    direct = expected(whole, mine[0][fold_F], mine[1][fold_F], kind, is_balanced=is_balanced)
    left = num + (43 if has_others else 0) - len(fold_F)
    if left <= NUM_CLASSES + 1 and not has_others:
        assert np.isfinite(found).all()  # hardly a sample a class: the scatter is rounding alone
    else:
        np.testing.assert_allclose(found, direct, rtol=1e-7, atol=1e-7 * np.abs(direct[direct > -1e8]).max(initial=1))


def test_samples_that_are_all_alike_have_finite_logits() -> None:
    features_ND, labels_N = np.ones((6, DIM), np.float32), np.array([0, 0, 0, 1, 1, 1])
    for kind in ("means", "lda", "ridge"):
        spectrum = Spectrum.alone(features_ND, labels_N, NUM_CLASSES, has_moment=kind != "means")
        found = spectrum.fold_logits(np.array([0, 3]), kind, SHRINKAGES[kind])
        assert np.isfinite(found).all()
