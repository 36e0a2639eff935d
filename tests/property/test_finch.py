"""Guarantees of FINCH and FINCH* for every input; FINCH equals its authors' code."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedplcc.shared.methods.arithmetic.finch import MergeMean, finch, finch_star

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it warns of optional packages when imported
    from finch import FINCH

unhurried = settings(deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
MERGE_MEANS = st.sampled_from(["plain", "weighted"])

tied_rows = hnp.arrays(
    np.float32, st.tuples(st.integers(0, 24), st.integers(1, 4)), elements=st.integers(-2, 2).map(float)
)
"""Small whole numbers: ties, duplicates, opposite and zero rows are common."""


def distinct_rows(seed: int) -> np.ndarray:
    """Rows without ties: features with a few modes, as wide as they come, of up to 80 samples."""
    rng = np.random.default_rng(seed)
    num_rows, dim, modes = rng.integers(1, 81), rng.integers(3, 65), rng.integers(1, 7)
    centres = rng.normal(size=(modes, dim)) * rng.uniform(0.2, 4)
    rows = centres[rng.integers(0, modes, num_rows)] + rng.normal(size=(num_rows, dim))
    if rng.integers(2):
        rows = np.maximum(rows, 0)
    return np.asarray(rows * rng.uniform(0.01, 100), dtype=np.float32)


def short_rows(seed: int) -> np.ndarray:
    """Rows of at most 12 bits a value, so that products with 12 bits are exact in float32."""
    rows = distinct_rows(seed)
    return np.asarray(np.round(rows / np.abs(rows).max() * 2047), dtype=np.float32)


def is_same_partition(left: np.ndarray, right: np.ndarray) -> bool:
    return len(set(zip(left.tolist(), right.tolist(), strict=True))) == len(set(left)) == len(set(right))


@unhurried
@given(tied_rows)
def test_partitions_are_coarsenings_with_at_most_half_the_clusters(rows: np.ndarray) -> None:
    partitions = finch(rows)
    is_zero = ~rows.any(axis=1)
    assert (len(partitions) == 0) == bool(is_zero.all())
    for level, labels in enumerate(partitions):
        assert ((labels == -1) == is_zero).all()
        used = labels[~is_zero]
        first_seen = list(dict.fromkeys(used.tolist()))
        assert first_seen == list(range(len(first_seen))), "clusters are numbered by their first row"
        if level > 0:
            finer = partitions[level - 1][~is_zero]
            assert len(set(zip(finer.tolist(), used.tolist(), strict=True))) == finer.max() + 1, "no cluster is split"
            assert 2 <= used.max() + 1 <= (finer.max() + 1) // 2
        elif len(used) > 1:
            assert np.bincount(used).min() >= 2, "every row has a neighbour"


@unhurried
@given(SEEDS, st.integers(1, 4095), st.integers(-30, 30))
def test_one_scale_for_all_rows_changes_no_cluster(seed: int, factor: int, exponent: int) -> None:
    rows = short_rows(seed)
    straight, scaled = finch(rows), finch(rows * np.float32(factor * 2.0**exponent))
    assert [labels.tolist() for labels in straight] == [labels.tolist() for labels in scaled]


@unhurried
@given(tied_rows, MERGE_MEANS, st.sampled_from(["last", "first", "index:1"]), st.data())
def test_finch_star_loses_no_weight_and_stays_within_its_rows(
    rows: np.ndarray, merge_mean: MergeMean, partition: str, data: st.DataObject
) -> None:
    weights = data.draw(hnp.arrays(np.float64, len(rows), elements=st.integers(1, 10**6).map(float)))
    clusters = finch_star(rows, weights, partition, merge_mean)
    is_used = rows.any(axis=1)
    assert clusters.num_excluded == np.count_nonzero(~is_used)
    assert clusters.weights_C.sum() == weights[is_used].sum()
    assert len(clusters.centres_CD) == len(clusters.weights_C)
    for cluster, centre in enumerate(clusters.centres_CD):
        members = clusters.labels_N == cluster
        assert clusters.weights_C[cluster] == weights[members].sum()
        assert (rows[members].min(axis=0) <= centre).all()
        assert (centre <= rows[members].max(axis=0)).all()
        expected = np.average(
            rows[members].astype(np.float64), axis=0, weights=weights[members] if merge_mean == "weighted" else None
        )
        np.testing.assert_allclose(centre, expected, rtol=1e-6, atol=1e-7)


def has_clear_neighbours(rows: np.ndarray, partitions: tuple[np.ndarray, ...]) -> bool:
    """Whether float32 arithmetic, in which the authors' code works, cannot mistake a first neighbour at any level."""
    levels = [rows.astype(np.float64)]
    levels += [
        np.stack([levels[0][labels == c].mean(axis=0) for c in range(labels.max() + 1)]) for labels in partitions
    ]
    for level in levels:
        unit = level / np.linalg.norm(level, axis=1, keepdims=True)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -2)
        ordered = np.sort(cosines, axis=1)
        if len(level) > 2 and (ordered[:, -1] - ordered[:, -2]).min() < 2e-6:
            return False
    return True


@pytest.mark.parametrize("hundred", range(12))
def test_the_authors_code_finds_the_same_partitions(hundred: int) -> None:
    """1,200 random sets; cosine, without the library's early exit."""
    num_compared = 0
    for seed in range(100 * hundred, 100 * hundred + 100):
        rows = distinct_rows(seed)
        rows = rows[rows.any(axis=1)]
        ours = finch(rows)
        if not has_clear_neighbours(rows, ours):
            continue
        theirs, _, _ = FINCH(rows, distance="cosine", ensure_early_exit=False, verbose=False)
        assert len(ours) == theirs.shape[1], f"seed {seed}"
        for level, labels in enumerate(ours):
            assert is_same_partition(labels, theirs[:, level]), f"seed {seed}, partition {level}"
        num_compared += 1
    assert num_compared >= 90, "12 times 90 is more than a thousand"
