"""The weighted mean: what it promises for every input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedplcc.shared.methods.maths import weighted_mean

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
counts = st.integers(1, 2**29)


@st.composite
def updates(
    draw: st.DrawFn, dtype: type[np.number[Any]] = np.float32, max_clients: int = 6
) -> tuple[list[np.ndarray], list[float]]:
    """Blocks of one shape, and a sample count for each."""
    length = draw(st.integers(1, 12))
    elements = finite if dtype == np.float32 else st.integers(-(2**60), 2**60)
    blocks = draw(st.lists(hnp.arrays(dtype, length, elements=elements), min_size=1, max_size=max_clients))
    return blocks, draw(st.lists(counts.map(float), min_size=len(blocks), max_size=len(blocks)))


@settings(deadline=None)
@given(updates())
def test_the_mean_lies_between_its_inputs(update: tuple[list[np.ndarray], list[float]]) -> None:
    blocks, weights = update
    mean = weighted_mean(blocks, weights)
    assert mean.dtype == np.float32
    assert (np.min(blocks, axis=0) <= mean).all()
    assert (mean <= np.max(blocks, axis=0)).all()


@settings(deadline=None)
@given(updates(), st.integers(1, 12))
def test_any_cut_gives_the_same_bytes(update: tuple[list[np.ndarray], list[float]], cut: int) -> None:
    blocks, weights = update
    pieces = [
        weighted_mean([block[start : start + cut] for block in blocks], weights)
        for start in range(0, len(blocks[0]), cut)
    ]
    assert np.concatenate(pieces).tobytes() == weighted_mean(blocks, weights).tobytes()


@settings(deadline=None)
@given(hnp.arrays(np.float32, 5, elements=finite), counts)
def test_the_mean_of_one_client_is_its_own_values(block: np.ndarray, count: int) -> None:
    np.testing.assert_array_equal(weighted_mean([block], [float(count)]), block)


@settings(deadline=None)
@given(hnp.arrays(np.float32, 5, elements=finite), st.lists(counts.map(float), min_size=1, max_size=6))
def test_clients_that_agree_change_nothing(block: np.ndarray, weights: list[float]) -> None:
    np.testing.assert_array_equal(weighted_mean([block] * len(weights), weights), block)


@settings(deadline=None)
@given(updates(dtype=np.int64))
def test_integers_take_the_maximum(update: tuple[list[np.ndarray], list[float]]) -> None:
    blocks, weights = update
    largest = weighted_mean(blocks, weights)
    assert largest.dtype == np.int64
    np.testing.assert_array_equal(largest, np.max(blocks, axis=0))


def test_the_mean_is_weighted_and_rounded_once() -> None:
    blocks = [np.array([1.0, 0.1], np.float32), np.array([4.0, 0.2], np.float32)]
    expected = [(1 * 1 + 2 * 4) / 3, (float(blocks[0][1]) + 2 * float(blocks[1][1])) / 3]
    np.testing.assert_array_equal(weighted_mean(blocks, [1, 2]), np.array(expected, np.float32))


def test_a_small_change_among_many_is_not_lost() -> None:
    # In float32 the thousand additions would round away what the last client moved.
    blocks = [np.array([1.0], np.float32)] * 1000 + [np.array([1.001], np.float32)]
    mean = weighted_mean(blocks, [1.0] * 1001)
    assert mean[0] == np.float32((1000 + float(np.float32(1.001))) / 1001)


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
