"""Uncertainty of few runs: bootstrap intervals, interquartile means, and exact sign-flip permutation tests. Pure.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021,
https://arxiv.org/abs/2108.13264 (the library rliable), for intervals and the interquartile mean; Fisher, "The Design of
Experiments", 1935, chapter 3, for the test.

A table of scores has a line for each run (a seed) and a column for each domain, `[N, D]`.

Differs from rliable: there the tasks are trained apart, and the stratified bootstrap draws the runs of each task anew. Here
the domains of a run are tests of one model and rise and fall together: intervals that draw them apart are too narrow.
Both are here: `by_runs` keeps the domains of a run together, `by_domains` is rliable's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedplcc.shared.scoring.intervals import CONFIDENCE, DIGITS, Interval

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""Takes tables `[..., N, D]` and returns one number for each, `[...]`."""

RESAMPLES = 10_000
"""Random resamples where there are too many to take each once."""
MAX_EXACT_RESAMPLES = 50_000
"""Most resamples that are all taken: runs are resampled exactly up to six of them."""
MAX_EXACT_PAIRS = 20
"""Most pairs whose signs are flipped in every way, 2^20; beyond, `RANDOM_FLIPS` random ways are taken."""
RANDOM_FLIPS = 100_000
SEED = 0
TOLERANCE = 1e-12
"""Sums of differences that differ by less are equal: accuracies are fractions, and their sums round."""


@dataclass(frozen=True, slots=True)
class Test:
    """Outcome of a two-sided sign-flip test.

    Attributes:
        p: Share of the ways to flip signs whose sum is as far from 0 as the observed one, or further.
        least: The smallest share that so many pairs can have.
        num_pairs: Number of differences whose signs were flipped.
        is_exact: Whether each way was taken once.
    """

    p: float
    least: float
    num_pairs: int
    is_exact: bool


def mean(tables: Array) -> Array:
    """Return the mean over runs and domains."""
    return np.asarray(tables.mean(axis=(-2, -1)))


def interquartile_mean(tables: Array) -> Array:
    """Return the mean of the middle half of all scores of a table: a quarter, rounded down, is cut off at either end."""
    scores = np.sort(tables.reshape(*tables.shape[:-2], -1), axis=-1)
    cut = scores.shape[-1] // 4
    return np.asarray(scores[..., cut : scores.shape[-1] - cut].mean(axis=-1))


def by_runs(scores: Array, statistic: Statistic) -> Interval | None:
    """Return the bootstrap interval of a statistic over whole runs; None of a single run.

    Args:
        scores: `[N, D]`.
        statistic: What is computed of each resample.
    """
    count = len(scores)
    return None if count < 2 else _interval(statistic(scores[_draws(count)]))


def by_domains(scores: Array, statistic: Statistic) -> Interval | None:
    """Return the stratified bootstrap interval of rliable: the runs are drawn anew for each domain; None of a single run.

    Args:
        scores: `[N, D]`.
    """
    count, num_domains = scores.shape
    if count < 2:
        return None
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, count, (RESAMPLES, count, num_domains))
    return _interval(statistic(np.take_along_axis(scores[None], drawn, axis=1)))


def sign_flip_test(differences: Sequence[float]) -> Test | None:
    """Return the two-sided permutation test of paired differences whose sign is a matter of chance; None without any.

    Under the hypothesis that neither of two methods is better, each difference might as well have had the other sign.
    """
    values = np.asarray(differences, np.float64)
    count = len(values)
    if not count:
        return None
    is_exact = count <= MAX_EXACT_PAIRS
    sums = _all_sums(values) if is_exact else _random_sums(values)
    reached = int(
        np.count_nonzero(np.abs(sums) >= abs(float(values.sum())) - TOLERANCE * max(1.0, np.abs(values).sum()))
    )
    if not is_exact:  # the observed signs are one of the ways
        return Test((reached + 1) / (RANDOM_FLIPS + 1), 1 / (RANDOM_FLIPS + 1), count, is_exact)
    return Test(reached / 2**count, 2 / 2**count, count, is_exact)


@lru_cache(maxsize=32)
def _draws(count: int) -> NDArray[np.int64]:
    """Return resamples of runs `[B, N]`: all of them, or random ones where they are many."""
    if count**count <= MAX_EXACT_RESAMPLES:
        return np.indices((count,) * count).reshape(count, -1).T.astype(np.int64)
    return np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))


def _interval(values: Array) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    # Of few runs there are few different resamples: a bound is one of their values, not one between two of them.
    low, high = np.quantile(values, (tail, 1 - tail), method="inverted_cdf")
    return Interval(round(float(low), DIGITS), round(float(high), DIGITS))


def _all_sums(values: Array) -> Array:
    """Return the sum under each choice of signs, `[2^n]`."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate((sums + value, sums - value))
    return sums


def _random_sums(values: Array) -> Array:
    signs = np.random.default_rng(SEED).integers(0, 2, (RANDOM_FLIPS, len(values)), np.int8) * 2 - 1
    return np.asarray(signs @ values)
