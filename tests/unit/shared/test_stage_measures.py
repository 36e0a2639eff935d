"""The measures of runs with stages are those of their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.stage_measures import average_accuracy, backward_transfer, forgetting, rarest_classes

KNOWN: list[list[float]] = [[0.9], [0.7, 0.8], [0.6, 0.75, 0.85]]


def test_the_published_example() -> None:
    assert average_accuracy(KNOWN) == pytest.approx(0.7333, abs=5e-5)
    assert forgetting(KNOWN) == pytest.approx(0.175)
    assert backward_transfer(KNOWN) == pytest.approx(-0.175)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.floats(0, 1), min_size=n * n, max_size=n * n)))
def test_they_are_those_of_a_second_implementation(values: list[float]) -> None:
    size = int(len(values) ** 0.5)
    square = np.array(values).reshape(size, size)
    rows = [square[s, : s + 1].tolist() for s in range(size)]
    last = square[-1]
    assert average_accuracy(rows) == pytest.approx(last.mean())
    if size == 1:
        assert forgetting(rows) is backward_transfer(rows) is None
        return
    lost = [square[j:-1, j].max() - last[j] for j in range(size - 1)]
    assert forgetting(rows) == pytest.approx(np.mean(lost))
    assert backward_transfer(rows) == pytest.approx((last - square.diagonal())[:-1].mean())


def test_a_measure_without_its_accuracies_is_unknown() -> None:
    rows: list[list[float | None]] = [[0.9], [None, None], [0.6, 0.75, 0.85]]
    assert average_accuracy(rows) is not None
    assert forgetting(rows) is None
    assert backward_transfer(rows) is None
    assert average_accuracy(rows[:2]) is None


def test_the_rarest_half_of_the_classes() -> None:
    assert rarest_classes([5, 1, 3, 2]) == [1, 3]
    assert rarest_classes([2, 2, 2]) == [2]  # rounded down; of equal ones the last
    assert rarest_classes([]) == []
