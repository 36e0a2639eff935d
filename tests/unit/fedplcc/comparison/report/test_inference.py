"""Intervals and tests of few runs, against scipy, published numbers and counting by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, permutation_test, trim_mean

from fedplcc.comparison.report import inference
from fedplcc.comparison.report.inference import by_domains, by_runs, interquartile_mean, mean, sign_flip_test
from tests.support import present

FISHER = (49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48)
"""Darwin's maize: cross-fertilised less self-fertilised height in eighths of an inch (Fisher 1935, table 3)."""


def table(seed: int, runs: int, domains: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1001, (runs, domains)) / 1000


def test_darwins_maize_has_fishers_share() -> None:
    """Fisher counts 863 of the 32,768 ways with a sum of at least 314, and as many on the other side."""
    found = present(sign_flip_test(FISHER))
    assert found.p == 2 * 863 / 32768
    assert (found.least, found.num_pairs, found.is_exact) == (2 / 32768, 15, True)


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=8))
@settings(max_examples=40, deadline=None)
def test_the_test_is_scipys_exact_one(counts: list[int]) -> None:
    theirs = permutation_test(  # of whole numbers: of others scipy takes sums for unequal that only round differently
        (counts,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    ours = present(sign_flip_test([count / 1000 for count in counts]))
    assert ours.p == pytest.approx(min(1.0, theirs.pvalue), abs=1e-12)


def test_sums_that_only_round_differently_are_equal() -> None:
    found = sign_flip_test([0.1, 0.2, -0.3])  # 0.1 + 0.2 - 0.3 is 5.6e-17
    assert found is not None
    assert found.p == 1.0


@pytest.mark.parametrize(("seeds", "least"), [(1, 1.0), (2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_few_pairs_cannot_have_a_small_share(seeds: int, least: float) -> None:
    found = present(sign_flip_test([0.5 + seed for seed in range(seeds)]))
    assert found.p == found.least == least
    assert sign_flip_test([]) is None


def test_many_pairs_are_flipped_at_random_near_to_the_exact_share() -> None:
    differences = np.random.default_rng(3).normal(0.3, 1.0, 22)
    found = present(sign_flip_test(list(differences)))
    assert not found.is_exact
    sums = np.array([0.0])
    for value in differences:
        sums = np.concatenate((sums + value, sums - value))
    assert found.p == pytest.approx(np.mean(np.abs(sums) >= abs(differences.sum())), abs=0.005)
    assert sign_flip_test(list(differences)) == found, "the same at every call"


@pytest.mark.parametrize("shape", [(3, 4), (3, 5), (2, 1), (5, 3), (1, 7)])
def test_the_interquartile_mean_is_scipys_trimmed_mean(shape: tuple[int, int]) -> None:
    scores = table(7, *shape)
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))
    first, second = interquartile_mean(np.stack([scores, scores + 1]))
    assert second == pytest.approx(first + 1)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
@pytest.mark.parametrize("runs", [2, 3, 5])
def test_few_runs_are_resampled_in_every_way(runs: int, statistic: inference.Statistic) -> None:
    scores = table(runs, runs, 4)
    every = [float(statistic(scores[list(draw)])) for draw in itertools.product(range(runs), repeat=runs)]
    found = present(by_runs(scores, statistic))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(every, (0.025, 0.975), method="inverted_cdf")))


@pytest.mark.parametrize("runs", [3, 8])
def test_intervals_over_runs_are_near_to_scipys(runs: int) -> None:
    scores = table(11, runs, 4)
    theirs = bootstrap(
        (scores.mean(axis=1),), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    found = present(by_runs(scores, mean))
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.012)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_stratified_intervals_are_near_to_scipys_with_a_sample_for_each_domain(statistic: inference.Statistic) -> None:
    """scipy draws each of several samples anew, which is rliable's stratified bootstrap."""
    scores = table(13, 5, 3)

    def of_samples(*samples: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.stack([np.moveaxis(sample, axis, -1) for sample in samples], axis=-1))

    theirs = bootstrap(
        tuple(scores.T), of_samples, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    found = present(by_domains(scores, statistic))
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.012)
    assert by_domains(scores, statistic) == found, "the same at every call"


def test_a_single_run_has_no_interval() -> None:
    assert by_runs(table(1, 1, 4), mean) is None
    assert by_domains(table(1, 1, 4), mean) is None
