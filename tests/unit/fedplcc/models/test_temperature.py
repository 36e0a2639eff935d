"""The temperature has the least cross-entropy of all, and is found from logits that were scaled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from fedplcc.models.temperature import HIGHEST, LOWEST, doubts_about, fitted_temperature


def loss_at(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    parts = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    return float(log_loss(labels, parts / parts.sum(1, keepdims=True), labels=range(logits.shape[1])))


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 5.0))
def test_no_temperature_has_a_lower_cross_entropy(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 200)
    logits = scale * (rng.normal(size=(200, 4)) + np.eye(4)[labels])
    found = fitted_temperature(logits, labels)
    assert LOWEST < found < HIGHEST
    best = loss_at(logits, labels, found)
    for factor in (0.9, 0.99, 1.01, 1.1):
        assert best <= loss_at(logits, labels, factor * found) + 1e-12
    assert fitted_temperature(3.0 * logits, labels) == pytest.approx(min(3.0 * found, HIGHEST), rel=1e-9)


def test_where_all_images_are_right_or_none_is_it_ends_at_a_bound() -> None:
    labels = np.array([0, 1, 2])
    for logits, bound, said in ((np.eye(3), LOWEST, "0.05 is the lowest"), (-np.eye(3), HIGHEST, "20 is the highest")):
        found = fitted_temperature(logits, labels)
        assert found == pytest.approx(bound)
        (doubt,) = doubts_about(found, labels)
        assert doubt.startswith(f"{said} temperature that is sought")
    assert doubts_about(1.0, labels) == ()
    assert doubts_about(1.0, labels[:1]) != ()
