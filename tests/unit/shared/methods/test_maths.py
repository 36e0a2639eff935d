"""The weighted mean: what it promises for every input."""

from __future__ import annotations

import numpy as np
import pytest

from fedplcc.shared.methods.maths import weighted_mean


def test_blocks_may_come_from_a_generator_and_are_not_changed() -> None:
    blocks = [np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0], np.float32)]
    mean = weighted_mean((block for block in blocks), [1.0, 1.0])
    np.testing.assert_array_equal(mean, [2.0, 3.0])
    np.testing.assert_array_equal(blocks, [[1.0, 2.0], [3.0, 4.0]])
    counters = np.array([5], np.int64)
    assert weighted_mean([counters, np.array([9])], [1, 1]) is not counters
    assert counters.tolist() == [5]


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0], [float("nan")], [float("inf")], [1.0, 0.0]])
def test_weights_must_be_positive_finite_and_at_least_one(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        weighted_mean([np.zeros(2, np.float32)] * len(weights), weights)


@pytest.mark.parametrize(("num_blocks", "num_weights"), [(0, 1), (1, 2), (2, 1)])
def test_there_must_be_as_many_blocks_as_weights(num_blocks: int, num_weights: int) -> None:
    with pytest.raises(ValueError, match="argument"):
        weighted_mean([np.zeros(2, np.float32)] * num_blocks, [1.0] * num_weights)


def test_blocks_must_have_one_shape() -> None:
    with pytest.raises(ValueError, match="one shape"):
        weighted_mean([np.zeros(2, np.float32), np.zeros(1, np.float32)], [1.0, 1.0])
