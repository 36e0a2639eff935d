"""Cost of releases in Gaussian differential privacy, and the epsilon and delta that it stands for.

Dong, Roth, Su, "Gaussian Differential Privacy", Journal of the Royal Statistical Society B 84, 2022,
https://arxiv.org/abs/1905.02383: a release is mu-GDP where telling two neighbouring data sets apart by it is at least as
hard as telling N(0, 1) from N(mu, 1). Releases compose to the root of the sum of squares (corollary 3.3), and a mu-GDP
release is (epsilon, delta)-private for every epsilon with the delta below (corollary 2.13), which is that of Balle and Wang,
"Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, https://arxiv.org/abs/1805.06530.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fedplcc.shared.methods.parts.private_sums import COUNT_RATIO

DEFAULT_DELTA = 1e-5
"""Delta with which epsilon is told where nobody names one."""
MAX_EPSILON = 1e4
"""Largest epsilon that is told; a budget beyond it means nothing."""
_STEPS = 200
_FAR = 25.0
"""Beyond it the Mills ratio is its asymptotic series, and erfc would underflow."""


def mu_of_release(noise: float) -> float:
    """Return mu of one release of class sums and counts with this noise multiplier z: mu^2 = (1 + 1/16) / z^2.

    The sums of all classes together move by at most C in L2 and have noise of deviation z C; the counts move by at most 1
    and have noise of deviation 4 z.
    """
    return math.sqrt(1 + 1 / COUNT_RATIO**2) / noise


def composed(mus: Iterable[float]) -> float:
    """Return mu of several releases together, in any order, each chosen with the earlier ones in view."""
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def delta_of(epsilon: float, mu: float) -> float:
    """Return the least delta with which a mu-GDP release is (epsilon, delta)-private.

    Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), computed without a difference of tiny numbers: with a = -eps/mu + mu/2,
    e^eps phi(a - mu) = phi(a).
    """
    if mu <= 0:
        return 0.0
    low = -epsilon / mu + mu / 2
    if low > -1:
        # Nothing is tiny here; the second term is a product of e^eps and what it makes small.
        return max(0.0, _normal_below(low) - _density(low) * _mills(mu - low))
    return max(0.0, _density(low) * (_mills(-low) - _mills(mu - low)))


def epsilon_of(delta: float, mu: float) -> float:
    """Return the least epsilon with which a mu-GDP release is (epsilon, delta)-private, rounded up; infinite beyond
    `MAX_EPSILON`.
    """
    if delta_of(0.0, mu) <= delta:
        return 0.0
    if delta_of(MAX_EPSILON, mu) > delta:
        return math.inf
    return _upper(lambda epsilon: delta_of(epsilon, mu) <= delta, MAX_EPSILON)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (epsilon, delta)-private, rounded down."""
    most = math.sqrt(2 * MAX_EPSILON)
    return 1 / _upper(lambda inverse: delta_of(epsilon, 1 / inverse) <= delta, 1e12, lowest=1 / most)


def noise_for(epsilon: float, delta: float, releases: int) -> float:
    """Return the least noise multiplier z with which so many releases are (epsilon, delta)-private together.

    It is rounded up to a multiple of 2^-20, far above the last bits by which mathematical libraries differ: a release has
    its noise multiplier in its name.
    """
    return math.ceil(2**20 * mu_of_release(1.0) * math.sqrt(releases) / mu_of(epsilon, delta)) / 2**20


def _upper(holds: Callable[[float], bool], highest: float, lowest: float = 0.0) -> float:
    """Return the end of a bisection at which a condition holds that, once it holds, holds for all larger values."""
    for _ in range(_STEPS):
        middle = (lowest + highest) / 2 if lowest * 4 > highest or not lowest else math.sqrt(lowest * highest)
        if not lowest < middle < highest:
            break
        if holds(middle):
            highest = middle
        else:
            lowest = middle
    return highest


def _normal_below(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2


def _density(value: float) -> float:
    return math.exp(-value * value / 2) / math.sqrt(2 * math.pi)


def _mills(value: float) -> float:
    """Return (1 - Phi(x)) / phi(x)."""
    if value < _FAR:
        return _normal_below(-value) / _density(value)
    square = 1 / (value * value)
    return (1 - square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square)))) / value
