"""Epsilons of composed releases by Google's dp-accounting, which knows nothing of Gaussian differential privacy's formulas.

    python -m venv other && other/bin/pip install dp-accounting==0.6.0
    other/bin/python tests/support/oracles/dp_accounting_epsilons.py > tests/golden/dp_accounting_epsilons.json

It has an environment of its own: it needs attrs below 24, and no other library here does. Each release is two Gaussian
mechanisms at once, of the sums and of the counts, as independent losses that it composes numerically.
"""

from __future__ import annotations

import json

from dp_accounting.pld import privacy_loss_distribution as losses

CASES = ((1, 1.0), (1, 4.0), (5, 3.0), (50, 20.0), (1000, 40.0), (1000, 120.0), (1000, 400.0))
"""Number of releases and noise multiplier z of each."""
DELTAS = (1e-6, 1e-5, 1e-3)
COUNT_RATIO = 4


def epsilons(releases: int, noise: float) -> list[float]:
    """Return epsilon for each delta."""
    step = 1e-4 / releases**0.5
    sums = losses.from_gaussian_mechanism(noise, value_discretization_interval=step)
    counts = losses.from_gaussian_mechanism(noise * COUNT_RATIO, value_discretization_interval=step)
    return [sums.compose(counts).self_compose(releases).get_epsilon_for_delta(delta) for delta in DELTAS]


if __name__ == "__main__":
    rows = [{"releases": num, "noise": noise, "epsilons": epsilons(num, noise)} for num, noise in CASES]
    print(json.dumps({"version": "dp-accounting 0.6.0", "deltas": DELTAS, "rows": rows}, indent=1))
