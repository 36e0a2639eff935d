"""Heads in closed form, beside scikit-learn's on the pooled features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid

from fedplcc.shared.methods.heads import class_heads
from fedplcc.shared.methods.heads.creff_matching import Head

NUM_CLASSES, DIM = 4, 7


def samples(seed: int = 0, counts: tuple[int, ...] = (30, 11, 5, 24)) -> tuple[np.ndarray, np.ndarray]:
    """Features of classes that scatter alike around means that do not, and their labels."""
    rng = np.random.default_rng(seed)
    labels_N = np.repeat(np.arange(len(counts)), counts)
    spread_DD = rng.normal(size=(DIM, DIM))
    features_ND = rng.normal(size=(len(labels_N), DIM)) @ spread_DD + 2 * rng.normal(size=(len(counts), DIM))[labels_N]
    return features_ND.astype(np.float32), labels_N


def head_of(features_ND: np.ndarray, labels_N: np.ndarray, kind: str, shrinkage: float = 0.0, **how: object) -> Head:
    classes = class_heads.Classes.of(class_heads.sums_of(features_ND, labels_N, NUM_CLASSES, has_moment=True))
    return class_heads.linear_head(classes, kind, shrinkage, **how)  # type: ignore[arg-type]


def scores(head: Head, features_ND: np.ndarray) -> np.ndarray:
    found: np.ndarray = features_ND.astype(np.float64) @ head.weight_MD.T + head.bias_M
    return found


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize("is_balanced", [False, True])
@given(seed=st.integers(0, 100), shrinkage=st.floats(0.01, 1.0))
@settings(max_examples=10)
def test_lda_is_scikit_learns_on_pooled_features(solver: str, is_balanced: bool, seed: int, shrinkage: float) -> None:
    features_ND, labels_N = samples(seed, (20, 20, 20, 20) if is_balanced else (30, 11, 5, 24))
    priors = [1 / NUM_CLASSES] * NUM_CLASSES if is_balanced else None
    wide_ND = features_ND.astype(np.float64)
    theirs = LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage, priors=priors).fit(wide_ND, labels_N)
    head = head_of(features_ND, labels_N, "lda", shrinkage, is_balanced=is_balanced)
    # Theirs are moved by what is the same for every class.
    coef_MD = theirs.coef_ - np.asarray(theirs.priors_) @ theirs.coef_
    np.testing.assert_allclose(head.weight_MD, coef_MD, rtol=0, atol=1e-8 * np.abs(coef_MD).max())
    found_NM = np.exp(scores(head, wide_ND))
    np.testing.assert_allclose(
        found_NM / found_NM.sum(1, keepdims=True), theirs.predict_proba(wide_ND), rtol=0, atol=1e-8
    )


@given(seed=st.integers(0, 100), shrinkage=st.floats(1e-3, 10.0))
@settings(max_examples=20)
def test_ridge_is_scikit_learns_on_pooled_features(seed: int, shrinkage: float) -> None:
    features_ND, labels_N = samples(seed)
    wide_ND = features_ND.astype(np.float64)
    eigenvalue = np.square(wide_ND - wide_ND.mean(0)).sum() / DIM
    theirs = Ridge(alpha=shrinkage * eigenvalue, solver="cholesky", tol=0).fit(wide_ND, np.eye(NUM_CLASSES)[labels_N])
    head = head_of(features_ND, labels_N, "ridge", shrinkage)
    np.testing.assert_allclose(head.weight_MD, theirs.coef_, rtol=0, atol=1e-8 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(head.bias_M, theirs.intercept_, rtol=0, atol=1e-8)


def test_balanced_ridge_is_scikit_learns_with_weights_where_classes_scatter_alike() -> None:
    """Every class is the same cloud, one of them four times over, around a mean of its own."""
    rng = np.random.default_rng(3)
    cloud, means = rng.normal(size=(12, DIM)), rng.normal(size=(3, DIM))
    labels_N = np.repeat([0, 1, 2], [48, 12, 12])
    features_ND = (np.tile(cloud, (6, 1)) + means[labels_N]).astype(np.float32)
    wide_ND, weights_N = features_ND.astype(np.float64), len(labels_N) / 3 / np.bincount(labels_N)[labels_N]
    center_D = np.average(wide_ND, axis=0, weights=weights_N)
    eigenvalue = (weights_N[:, None] * np.square(wide_ND - center_D)).sum() / DIM
    theirs = Ridge(alpha=0.1 * eigenvalue, solver="cholesky", tol=0)
    theirs.fit(wide_ND, np.eye(3)[labels_N], sample_weight=weights_N)
    sums = class_heads.sums_of(features_ND, labels_N, 3, has_moment=True)
    head = class_heads.linear_head(class_heads.Classes.of(sums), "ridge", 0.1, is_balanced=True)
    np.testing.assert_allclose(head.weight_MD, theirs.coef_, rtol=0, atol=2e-6 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(head.bias_M, theirs.intercept_, rtol=0, atol=2e-6)


@pytest.mark.parametrize("is_balanced", [False, True])
def test_means_predict_the_nearest_centroid(is_balanced: bool) -> None:
    features_ND, labels_N = samples()
    wide_ND = features_ND.astype(np.float64)
    found_N = scores(head_of(features_ND, labels_N, "means", is_balanced=is_balanced), wide_ND).argmax(1)
    assert found_N.tolist() == NearestCentroid().fit(wide_ND, labels_N).predict(wide_ND).tolist()


@pytest.mark.parametrize("kind", ["means", "lda", "ridge"])
@pytest.mark.parametrize("is_balanced", [False, True])
def test_lapack_and_exact_arithmetic_make_one_head(kind: str, is_balanced: bool) -> None:
    found = [
        head_of(*samples(), kind, 0.2, is_balanced=is_balanced, algebra=algebra)
        for algebra in (class_heads.EXACT, class_heads.FAST)
    ]
    for name in ("weight_MD", "bias_M"):
        exact, fast = (getattr(head, name) for head in found)
        np.testing.assert_allclose(exact, fast, rtol=0, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("kind", ["means", "lda", "ridge"])
@pytest.mark.parametrize("is_balanced", [False, True])
def test_a_class_without_a_sample_is_never_predicted_and_changes_no_other(kind: str, is_balanced: bool) -> None:
    features_ND, labels_N = samples(counts=(9, 0, 8, 0))
    head = head_of(features_ND, labels_N, kind, 0.2, is_balanced=is_balanced)
    assert set(scores(head, 100 * features_ND).argmax(1)) <= {0, 2}
    assert head.bias_M[[1, 3]].tolist() == [class_heads.ABSENT] * 2
    assert not head.weight_MD[[1, 3]].any()
    sums = class_heads.sums_of(features_ND, labels_N // 2, 2, has_moment=True)
    alone = class_heads.linear_head(class_heads.Classes.of(sums), kind, 0.2, is_balanced=is_balanced)  # type: ignore[arg-type]
    assert head.weight_MD[[0, 2]].tobytes() == alone.weight_MD.tobytes()


@pytest.mark.parametrize("kind", ["means", "lda", "ridge"])
@pytest.mark.parametrize("algebra", [class_heads.EXACT, class_heads.FAST], ids=["exact", "fast"])
def test_degenerate_sums_make_finite_heads(kind: str, algebra: class_heads.Algebra) -> None:
    nothing = class_heads.ClassSums(np.zeros(NUM_CLASSES), np.zeros((NUM_CLASSES, DIM)), np.zeros((DIM, DIM)))
    zeros = class_heads.ClassSums(np.ones(NUM_CLASSES), np.zeros((NUM_CLASSES, DIM)), np.zeros((DIM, DIM)))
    lying = class_heads.ClassSums(np.ones(NUM_CLASSES), np.eye(NUM_CLASSES, DIM), -np.eye(DIM))
    for sums in (nothing, zeros, lying):
        head = class_heads.linear_head(class_heads.Classes.of(sums, algebra), kind, 0.1, algebra=algebra)  # type: ignore[arg-type]
        assert np.isfinite(head.weight_MD).all()
        assert np.isfinite(head.bias_M).all()
