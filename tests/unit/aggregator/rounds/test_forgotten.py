"""Stages that a run has forgotten: more than 0.1 below their best for three evaluated rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.rounds.forgotten import StageMemory

Evaluated = tuple[int, Sequence[float | None]]
"""Stage of an evaluated round, and the accuracy on each stage."""


def memory_after(rounds: Iterable[Evaluated]) -> StageMemory:
    memory = StageMemory()
    for number, (stage, row) in enumerate(rounds, start=1):
        memory = memory.after(number, stage, row)
    return memory


def forgotten(*rounds: Evaluated) -> tuple[int, ...]:
    return memory_after(rounds).forgotten


LEARNT: Evaluated = (1, [0.9])
LOST: Evaluated = (2, [0.7, 0.8])
KEPT: Evaluated = (2, [0.85, 0.8])


def test_a_stage_is_forgotten_after_three_rounds_and_remembered_after_one() -> None:
    assert StageMemory().forgotten == ()
    assert forgotten(LEARNT, LOST, LOST) == ()
    assert forgotten(LEARNT, LOST, LOST, LOST) == (1,)
    assert forgotten(LEARNT, LOST, LOST, LOST, LOST) == (1,)
    assert forgotten(LEARNT, LOST, LOST, LOST, KEPT) == ()
    assert forgotten(LEARNT, LOST, LOST, KEPT, LOST) == ()


def test_a_tenth_less_is_not_more_than_a_tenth() -> None:
    learnt, tenth_less = (1, [0.8]), (2, [0.7, 0.8])
    assert 0.8 - 0.7 > 0.1, "as floating-point numbers"
    assert forgotten(learnt, tenth_less, tenth_less, tenth_less) == ()


ROUNDS = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.none() | st.integers(0, 20), min_size=4, max_size=4)), max_size=12
)


@given(ROUNDS)
def test_they_are_those_of_a_second_implementation(rounds: list[tuple[int, list[int | None]]]) -> None:
    """It keeps all rounds, and counts twentieths exactly."""
    found = memory_after((stage, [None if each is None else each / 20 for each in row]) for stage, row in rounds)
    expected = []
    for stage in range(1, 5):
        reported = [
            (index, Fraction(row[stage - 1] or 0, 20))
            for index, (_, row) in enumerate(rounds)
            if row[stage - 1] is not None
        ]
        since = max((index for index, (present, _) in enumerate(rounds) if present == stage), default=-1)
        last = [(place, value) for place, (index, value) in enumerate(reported) if index > since][-3:]
        lost = [max(best for _, best in reported[: place + 1]) - value > Fraction(1, 10) for place, value in last]
        if lost == [True] * 3:
            expected.append(stage)
    assert found.forgotten == tuple(expected)
