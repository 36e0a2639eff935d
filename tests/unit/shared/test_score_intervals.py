"""Intervals of scores: Wilson's as SciPy has them, and means of shares that hold the truth as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedplcc.shared.bounds import SCORE_BINS
from fedplcc.shared.scoring import intervals
from fedplcc.shared.scoring.class_scores import class_scores
from fedplcc.shared.scoring.histograms import areas, histograms_of, macro_area
from fedplcc.shared.scoring.intervals import (
    accuracy_interval,
    area_intervals,
    balanced_interval,
    macro_area_interval,
    mean_interval,
    share_interval,
)
from fedplcc.shared.scoring.scores import balanced_accuracy
from fedplcc.shared.types import ScoreHistograms

counts = st.integers(1, 400).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole)))


@given(counts)
def test_a_share_has_the_interval_of_scipy(pair: tuple[int, int]) -> None:
    found = intervals.share_interval(*pair)
    theirs = binomtest(*pair).proportion_ci(intervals.CONFIDENCE, method="wilson")
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
        for each in (intervals.balanced_interval(right.tolist(), total) for right in drawn)
    )
    assert held / tries == pytest.approx(intervals.CONFIDENCE, abs=0.02)


def wilson_of(value: float, variance: float, most: float) -> intervals.Interval:
    """SciPy's Wilson interval takes whole numbers alone: its equation, solved for the two shares that lie so far away."""
    number = min(most, value * (1 - value) / variance) if variance > 0 and 0 < value < 1 else most
    z = 1.959963984540054
    roots = np.roots([number + z * z, -(2 * number * value + z * z), number * value * value]).real
    return intervals.Interval(max(0.0, min(roots)), min(1.0, max(roots)))


matrices = st.integers(2, 4).flatmap(
    lambda size: st.tuples(
        st.lists(st.integers(0, 40), min_size=size * size, max_size=size * size),
        st.lists(st.integers(0, 5), min_size=size, max_size=size),
    )
)


@given(matrices)
def test_macro_f1_has_the_variance_of_its_numeric_gradient(found: tuple[list[int], list[int]]) -> None:
    """The multinomial delta method with central differences, in place of the gradient in closed form."""
    cells, lost = found
    size = len(lost)
    counts = np.concatenate([np.array(cells, float).reshape(size, size), np.array(lost, float)[:, None]], axis=1)
    total = [int(each) for each in counts.sum(axis=1)]
    interval = intervals.macro_f1_interval(total, cells)
    if not sum(total):
        assert interval is None
        return
    sums = counts.sum(axis=1) + counts[:, :size].sum(axis=0)
    known = sums > 0

    def macro_f1(shares: np.ndarray) -> float:
        sides = shares.sum(axis=1) + shares[:, :size].sum(axis=0)
        return float((2 * shares[:, :size].diagonal()[known] / sides[known]).mean())

    shares, step = counts / counts.sum(), 1e-6
    gradient = np.zeros_like(shares)
    for place in zip(*np.nonzero(shares), strict=True):
        up, down = shares.copy(), shares.copy()
        up[place] += step * shares[place]
        down[place] -= step * shares[place]
        gradient[place] = (macro_f1(up) - macro_f1(down)) / (2 * step * shares[place])
    variance = float((shares * gradient**2).sum() - (shares * gradient).sum() ** 2) / counts.sum()
    value = macro_f1(shares)
    assert value == pytest.approx(class_scores(total, cells).macro_f1, abs=1e-12)
    present = [each for each in total if each]
    expected = wilson_of(
        value, variance if variance > 1e-12 else 0.0, len(present) ** 2 / sum(1 / each for each in present)
    )
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-5)


def histograms_from(bins_of_class: list[list[int]], bins_of_others: list[list[int]]) -> ScoreHistograms:
    own, others = (
        np.concatenate([np.bincount(each, minlength=SCORE_BINS) for each in bins])
        for bins in (bins_of_class, bins_of_others)
    )
    return ScoreHistograms(
        of_class=tuple(own.tolist()), of_others=tuple(others.tolist()), confidence=(), confidence_correct=()
    )


bins = st.lists(st.integers(0, SCORE_BINS - 1), min_size=1, max_size=25)


@given(bins, bins)
def test_an_area_has_the_variance_of_delong_over_all_pairs(own: list[int], others: list[int]) -> None:
    found = histograms_from([own], [others])
    ahead = np.array([[1.0 if one > other else 0.5 if one == other else 0.0 for other in others] for one in own])
    variance = sum(
        placed.var(ddof=1) / len(placed) if len(placed) > 1 else 0.0 for placed in (ahead.mean(1), ahead.mean(0))
    )
    (area,), (interval,) = areas(found), intervals.area_intervals(found)
    assert area == pytest.approx(ahead.mean(), abs=1e-12)
    expected = wilson_of(ahead.mean(), variance if variance > 1e-15 else 0.0, min(len(own), len(others)))
    left_open = (ahead == 0.5).mean() / 2
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(
        (max(0.0, expected.low - left_open), min(1.0, expected.high + left_open)), abs=1e-6
    )
    assert intervals.macro_area_interval(found) == interval


def test_a_class_without_pairs_has_no_interval_and_does_not_count() -> None:
    found = histograms_from([[3, 9, 20], []], [[1, 2], [5]])
    assert area_intervals(found)[1] is None
    assert macro_area_interval(found) == area_intervals(found)[0]
    assert macro_area_interval(histograms_from([[]], [[1]])) is None


def test_intervals_of_macro_f1_and_area_hold_the_truth_about_as_often_as_they_say() -> None:
    """Three classes of other sizes; the truth is that of a hundred thousand images."""
    rng = np.random.default_rng(0)

    def drawn(number: int) -> tuple[list[int], list[int], ScoreHistograms]:
        labels_N = np.sort(rng.choice(3, number, p=[0.5, 0.3, 0.2]))
        logits_NM = rng.normal(size=(number, 3)) + 1.2 * np.eye(3)[labels_N]
        named_N = logits_NM.argmax(1)
        shares_NM = np.exp(logits_NM) / np.exp(logits_NM).sum(1, keepdims=True)
        bins_NM = np.minimum((shares_NM * SCORE_BINS).astype(np.int16), SCORE_BINS - 1)
        bins_NM = np.concatenate([bins_NM, np.zeros((number, 1), np.int16)], axis=1)
        cells = np.bincount(labels_N * 3 + named_N, minlength=9).tolist()
        return np.bincount(labels_N, minlength=3).tolist(), cells, histograms_of(bins_NM, labels_N, named_N, 3)

    total, cells, histograms = drawn(100_000)
    f1, area = class_scores(total, cells).macro_f1, macro_area(histograms)
    assert f1 is not None
    assert area is not None
    held = np.zeros(2)
    for _ in range(400):
        total, cells, histograms = drawn(120)
        for place, (truth, interval) in enumerate(
            ((f1, intervals.macro_f1_interval(total, cells)), (area, intervals.macro_area_interval(histograms)))
        ):
            assert interval is not None
            held[place] += interval.low <= truth <= interval.high
    assert 0.92 <= held[0] / 400 <= 0.98
    assert held[1] / 400 >= 0.95, "as wide as if the classes' areas went together wholly"
