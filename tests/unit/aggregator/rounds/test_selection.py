"""The cohort is a function of seed, round and roster, and of nothing else."""

from __future__ import annotations

import random
import subprocess
import sys

from fedplcc.aggregator.rounds.selection import select_cohort

ROSTER = tuple(f"client-{index:02}" for index in range(20))


def cohort(
    roster: tuple[str, ...] = ROSTER, *, seed: int = 3, number: int = 1, size: int | None = 5
) -> tuple[str, ...]:
    return select_cohort(roster, seed=seed, round_number=number, cohort_size=size)


def test_the_cohort_does_not_depend_on_the_order_of_the_roster() -> None:
    shuffled = list(ROSTER)
    random.Random(1).shuffle(shuffled)
    assert cohort(tuple(shuffled)) == cohort() == tuple(sorted(cohort()))


def test_another_interpreter_draws_the_same_cohort() -> None:
    call = f"select_cohort({ROSTER!r}, seed=3, round_number=1, cohort_size=5)"
    program = f"from fedplcc.aggregator.rounds.selection import select_cohort; print({call})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(cohort())


def test_without_a_size_or_with_a_large_one_everybody_takes_part() -> None:
    assert cohort(size=None) == cohort(size=20) == cohort(size=500) == ROSTER


def test_seed_and_round_each_draw_another_cohort() -> None:
    assert len({cohort(seed=seed) for seed in range(30)}) > 20
    assert len({cohort(number=number) for number in range(30)}) > 20


def test_a_client_that_joins_displaces_at_most_one_other_and_one_that_leaves_is_replaced_by_one() -> None:
    for number in range(1, 30):
        before, after = cohort(number=number), cohort((*ROSTER, "newcomer"), number=number)
        assert set(after) - set(before) <= {"newcomer"}
        assert len(after) == len(before) == 5
        left = cohort(tuple(name for name in ROSTER if name != before[2]), number=number)
        assert set(before) - set(left) == {before[2]}


def test_over_many_rounds_every_client_is_drawn_about_equally_often() -> None:
    drawn = [name for number in range(2000) for name in cohort(number=number)]
    counts = {name: drawn.count(name) for name in ROSTER}
    # 2000 draws of 5 in 20: 500 each, with a standard deviation of 19.
    assert all(400 < count < 600 for count in counts.values()), counts
