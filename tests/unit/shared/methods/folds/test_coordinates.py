"""Rules by coordinates and the clipped mean beside numpy on whole arrays, with ties, any order, cutting and number."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.folds.coordinates import COLUMNS, MOST_IN_NETWORK, median, num_trimmed, trimmed_mean
from fedplcc.shared.methods.folds.rules import Rule, clip_scales, clipped_mean

SIZES = (1, 2, 3, 4, 5, 7, 16, MOST_IN_NETWORK, MOST_IN_NETWORK + 1, 100)


def values(num_blocks: int, *, ties: bool = True, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(num_blocks, COLUMNS + 37)).astype(np.float32)
    if ties:
        found[:, ::3] = np.round(found[:, ::3])  # ties, 0 and -0 among them
    made: Block = found
    return made


def in_numpy(values_KE: Block, trimmed: int) -> Block:
    ascending = np.sort(values_KE.astype(np.float64) + 0.0, axis=0)[trimmed : len(values_KE) - trimmed]
    return np.asarray(np.add.reduce(ascending, axis=0) / len(ascending), np.float32)


@pytest.mark.parametrize("num_blocks", SIZES)
def test_medians_and_trimmed_means_are_numpys(num_blocks: int) -> None:
    found = values(num_blocks)
    expected = (np.median(found.astype(np.float64), axis=0) + 0.0).astype(np.float32)
    assert median(iter(found), num_blocks).tobytes() == expected.tobytes()
    trimmed = num_trimmed(num_blocks, 0.25)
    assert trimmed_mean(iter(found), num_blocks, trimmed).tobytes() == in_numpy(found, trimmed).tobytes()


@pytest.mark.parametrize("num_blocks", SIZES)
def test_integers_get_the_lower_median(num_blocks: int) -> None:
    found = np.random.default_rng(1).integers(-(2**62), 2**62, size=(num_blocks, 50))
    expected = np.sort(found, axis=0)[(num_blocks - 1) // 2]
    assert np.array_equal(median(found, num_blocks), expected)
    assert np.array_equal(trimmed_mean(found, num_blocks, num_trimmed(num_blocks, 0.3)), expected)
    ones = [1.0] * num_blocks
    assert np.array_equal(clipped_mean(found[0], found, ones, ones), expected)


@given(
    st.integers(1, 9),
    st.randoms(use_true_random=False),
    st.integers(1, 300),
    st.sampled_from(["median", "trimmed_mean"]),
)
@settings(max_examples=40, deadline=None)
def test_no_order_and_no_cutting_changes_a_byte(num_blocks: int, random: object, size: int, name: str) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    found = np.round(rng.normal(size=(num_blocks, 701)), 1).astype(np.float32)
    rule, ones = Rule(name=name, trim_share=0.3), [1.0] * num_blocks  # type: ignore[arg-type]
    whole = rule.fold(found[0].copy, found, ones)
    other = found[rng.permutation(num_blocks)]
    cut = [rule.fold(found[0].copy, other[:, first : first + size], ones) for first in range(0, 701, size)]
    assert np.concatenate(cut).tobytes() == whole.tobytes()


def test_a_clipped_mean_is_numpys_and_no_cutting_changes_a_byte() -> None:
    start, found = values(1, seed=5)[0], values(4, seed=6)
    weights, scales = [3.0, 1.0, 7.0, 2.0], clip_scales([1.0, 2.0, 1e30, 4.0], "median")
    assert scales == [1.0, 1.0, pytest.approx(2e-30), 0.5]
    steps = (found.astype(np.float64) - start) * (np.array(weights) * scales)[:, None]
    expected = (start + np.add.reduce(steps, axis=0) / 13.0).astype(np.float32)
    assert clipped_mean(start, found, weights, scales).tobytes() == expected.tobytes()
    cut = [
        clipped_mean(start[at : at + 99], found[:, at : at + 99], weights, scales) for at in range(0, len(start), 99)
    ]
    assert np.concatenate(cut).tobytes() == expected.tobytes()


def test_a_step_is_clipped_to_a_number_and_one_that_stays_is_not() -> None:
    assert clip_scales([0.0, 5.0, 10.0], 5.0) == [1.0, 1.0, 0.5]
    assert clip_scales([0.0, 0.0, 10.0], "median") == [1.0, 1.0, 0.0]
    assert clip_scales([3.0], "median") == [1.0]


def test_a_share_is_rounded_down() -> None:
    assert [num_trimmed(clients, 0.25) for clients in (1, 2, 3, 4, 7, 8)] == [0, 0, 0, 1, 1, 2]
    assert num_trimmed(100, 0.29) == 29


@pytest.mark.parametrize("bad", [[np.zeros(3)], [np.zeros(3)] * 3, [np.zeros(3), np.zeros(4)]])
def test_other_blocks_are_refused(bad: list[Block]) -> None:
    with pytest.raises(ValueError, match="blocks"):
        median(bad, 2)


def test_a_rule_by_coordinates_reads_less_at_a_time_the_more_clients_there_are() -> None:
    rule = Rule(name="median")
    assert [rule.block_elements(clients, 1 << 18) for clients in (2, 4, 20, 1000)] == [1 << 18, 1 << 18, 104857, 2097]
    assert Rule(name="clipped_mean").block_elements(1000, 1 << 18) == 1 << 18


@pytest.mark.parametrize("name", ["clipped_mean", "trimmed_mean", "median"])
def test_a_thousand_clients_need_16_mib_more_than_two_at_most(name: Any) -> None:
    def peak(num_clients: int) -> int:
        rule = Rule(name=name, scales=[0.5] * num_clients)
        size = rule.block_elements(num_clients, 1 << 18)
        rng = np.random.default_rng(0)
        blocks = (rng.random(size, dtype=np.float32) for _ in range(num_clients))  # one at a time, as they are read
        tracemalloc.start()
        try:
            rule.fold(np.zeros(size, np.float32).copy, blocks, [1.0] * num_clients)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(1000) - peak(2) <= 16 << 20
