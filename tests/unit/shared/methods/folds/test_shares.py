"""Weights with a largest share: the sum that is limited is that of what counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.methods.folds.shares import capped_sets, capped_weights
from fedplcc.shared.types import PrototypeSet


@given(st.lists(st.integers(1, 2**29), min_size=1, max_size=12), st.floats(0.05, 1.0))
def test_nobody_weighs_more_than_the_share_and_who_weighs_less_keeps_its_weight(
    counts: list[int], share: float
) -> None:
    weights = [float(count) for count in counts]
    found = capped_weights(weights, share)
    assert max(found) <= max(share, 1 / len(counts)) * sum(found) * (1 + 1e-9)
    assert all(after == before or after == max(found) for before, after in zip(weights, found, strict=True))
    assert sorted(found) == capped_weights(sorted(weights), share)


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ([5.0, 3.0], 1.0, [5.0, 3.0]),
        ([100.0, 10.0, 1.0], 0.5, [11.0, 10.0, 1.0]),
        ([100.0, 1.0], 0.5, [1.0, 1.0]),
        ([7.0], 0.2, [7.0]),
        ([2.0**29, 10.0, 10.0, 10.0], 0.25, [10.0] * 4),
    ],
)
def test_shares_by_hand(weights: list[float], share: float, expected: list[float]) -> None:
    assert capped_weights(weights, share) == pytest.approx(expected)


def test_prototypes_of_a_class_share_their_clients_weight_and_other_classes_keep_theirs() -> None:
    vectors = np.eye(3, dtype=np.float32)
    liar = PrototypeSet.of(vectors, np.array([0, 0, 1]), np.array([300.0, 100.0, 5.0]))
    honest = PrototypeSet.of(vectors[:2], np.array([0, 1]), np.array([10.0, 5.0]))
    third = PrototypeSet.of(vectors[:1], np.array([0]), np.array([10.0]))
    found = capped_sets([liar, honest, third], 0.5)
    assert found[0].weights.tolist() == [15.0, 5.0, 5.0]
    assert found[1] is honest
    assert found[2] is third
