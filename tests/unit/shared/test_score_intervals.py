"""Intervals of scores: Wilson's as SciPy has them, and means of shares that hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedplcc.shared.scoring.intervals import (
    CONFIDENCE,
    accuracy_interval,
    balanced_interval,
    mean_interval,
    share_interval,
)
from fedplcc.shared.scoring.scores import balanced_accuracy

counts = st.integers(1, 400).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole)))


@given(counts)
def test_a_share_has_the_interval_of_scipy(pair: tuple[int, int]) -> None:
    found = share_interval(*pair)
    theirs = binomtest(*pair).proportion_ci(CONFIDENCE, method="wilson")
    assert found is not None
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@given(st.lists(counts, min_size=1, max_size=6))
def test_an_interval_holds_its_score_and_stays_between_nothing_and_all(pairs: list[tuple[int, int]]) -> None:
    right, total = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    balanced, overall = balanced_interval(right, total), accuracy_interval(right, total)
    score = balanced_accuracy(right, total)
    assert balanced is not None
    assert overall is not None
    assert score is not None
    assert 0 <= balanced.low <= score + 1e-12
    assert score - 1e-12 <= balanced.high <= 1
    assert balanced == balanced_interval([*right, 0], [*total, 0])
    if len(pairs) == 1:
        assert (balanced.low, balanced.high) == pytest.approx((overall.low, overall.high), abs=1e-9)


def test_nothing_has_no_interval() -> None:
    assert share_interval(0, 0) is None
    assert balanced_interval([0, 0], [0, 0]) is None
    assert mean_interval([], []) is None


@pytest.mark.parametrize("truth", [(0.9, 0.5, 0.1), (0.97, 0.9, 0.8), (0.5, 0.5, 0.5)])
def test_a_balanced_accuracy_holds_the_truth_as_often_as_it_says(truth: tuple[float, ...]) -> None:
    rng, total, tries = np.random.default_rng(0), (200, 40, 15), 4000
    drawn = rng.binomial(total, truth, (tries, len(total)))
    held = sum(
        each is not None and each.low <= math.fsum(truth) / len(truth) <= each.high
        for each in (balanced_interval(right.tolist(), total) for right in drawn)
    )
    assert held / tries == pytest.approx(CONFIDENCE, abs=0.02)
