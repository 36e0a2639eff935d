"""Costs of releases, against integrals and another library's composed losses, which do not know the formulas."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from fedplcc.shared.privacy.guarantee import composed, delta_of, epsilon_of, mu_of, mu_of_release, noise_for


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(0.0, 0.3), (0.1, 0.05), (1.0, 0.268), (1.0, 3.0), (8.0, 1.7), (50.0, 7.0)]
)
def test_delta_is_what_one_normal_distribution_has_above_the_other(epsilon: float, mu: float) -> None:
    def above(x: float) -> float:
        return float(max(0.0, stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    begin = epsilon / mu + mu / 2
    found, _ = integrate.quad(above, begin, begin + 40, epsabs=1e-16, limit=500)
    assert delta_of(epsilon, mu) == pytest.approx(found, rel=1e-6, abs=1e-15)


def test_the_published_deviation_for_epsilon_1_and_delta_1e_5() -> None:
    # Balle and Wang's analytic mechanism; the classic sqrt(2 ln(1.25 / delta)) / epsilon is 4.84.
    assert 1 / mu_of(1.0, 1e-5) == pytest.approx(3.730632, abs=1e-5)


def test_a_release_costs_the_sums_and_the_counts_together() -> None:
    assert mu_of_release(2.0) ** 2 == pytest.approx((1 + 1 / 16) / 4)
    assert mu_of_release(2.0) == pytest.approx(math.hypot(1 / 2.0, 1 / (4 * 2.0)))


def test_composed_releases_cost_what_another_library_says() -> None:
    table = json.loads(Path("tests/golden/dp_accounting_epsilons.json").read_text())
    compared = [
        (epsilon_of(delta, composed([mu_of_release(row["noise"])] * row["releases"])), epsilon)
        for row in table["rows"]
        for delta, epsilon in zip(table["deltas"], row["epsilons"], strict=True)
    ]
    assert len(compared) == 21
    for own, other in compared:
        assert own == pytest.approx(other, abs=1e-3)
        assert own <= other + 1e-9, "theirs is rounded up"


@pytest.mark.parametrize("releases", [1, 7, 1000])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-5), (100.0, 1e-2)])
def test_the_noise_that_is_solved_keeps_the_promise_and_no_more(epsilon: float, delta: float, releases: int) -> None:
    noise = noise_for(epsilon, delta, releases)
    total = composed([mu_of_release(noise)] * releases)
    assert delta_of(epsilon, total) <= delta * (1 + 1e-9)
    assert epsilon_of(delta, composed([mu_of_release(noise * 0.999)] * releases)) > epsilon


def test_more_is_worse() -> None:
    mus = np.linspace(0.01, 9, 40)
    assert np.all(np.diff([epsilon_of(1e-5, mu) for mu in mus]) > 0)
    assert np.all(np.diff([delta_of(1.0, mu) for mu in mus]) > 0)
    assert epsilon_of(1e-5, 0.0) == 0.0
    assert epsilon_of(1e-5, 1e6) == math.inf
