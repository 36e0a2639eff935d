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


def test_the_best_is_that_of_any_round_before() -> None:
    fallen = (2, [0.79, 0.8])
    assert forgotten(LEARNT, (1, [0.5]), fallen, fallen, fallen) == (1,)
    assert forgotten((1, [0.5]), fallen, fallen, fallen) == ()


def test_the_present_stage_is_not_forgotten_however_far_it_falls() -> None:
    assert forgotten(LEARNT, *[(1, [0.2])] * 5) == ()
    assert forgotten(LEARNT, *[(1, [0.2])] * 5, (2, [0.2, 0.8]), (2, [0.2, 0.8])) == ()


def test_several_stages_count_each_for_itself() -> None:
    row: Evaluated = (3, [0.1, 0.1, 0.9])
    assert forgotten(LEARNT, (2, [0.9, 0.9]), row, row, row) == (1, 2)
    assert forgotten(LEARNT, (2, [0.9, 0.9]), row, row, (3, [0.9, 0.1, 0.9])) == (2,)


def test_a_round_in_which_nobody_reported_the_stage_changes_nothing() -> None:
    unknown: Evaluated = (2, [None, 0.8])
    assert forgotten(LEARNT, LOST, unknown, LOST, unknown) == ()
    assert forgotten(LEARNT, LOST, unknown, LOST, unknown, LOST) == (1,)
    assert forgotten((1, [None]), LOST, LOST, LOST) == ()


def test_in_a_later_pass_every_other_stage_is_an_earlier_one() -> None:
    first = [LEARNT, (2, [0.9, 0.9]), (3, [0.9, 0.9, 0.9])]
    again: Evaluated = (1, [0.9, 0.5, 0.9])
    assert forgotten(*first, again, again) == ()
    assert forgotten(*first, again, again, again) == (2,)
    assert forgotten(*first, again, again, again, (2, [0.9, 0.5, 0.9])) == (), "it is trained on again"


def test_of_64_stages_all_count() -> None:
    lost: Evaluated = (64, [0.0] * 63 + [1.0])
    assert forgotten((63, [1.0] * 64), lost, lost, lost) == tuple(range(1, 64))


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
