"""Times that a change of the wall clock cannot disturb."""

from __future__ import annotations

import pytest

from fedplcc.shared.process.clock import SteadyClock, not_before


def test_a_jump_of_the_wall_clock_changes_no_duration() -> None:
    wall, steady = [1000.0], [5.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1000.0
    wall[0] -= 3600
    steady[0] += 7
    assert clock() == 1007.0


@pytest.mark.parametrize(("earliest", "expected"), [(900.0, 1000.0), (4600.0, 4600.0)])
def test_a_clock_never_says_a_time_before_one_that_has_been(earliest: float, expected: float) -> None:
    now = [1000.0]
    clock = not_before(lambda: now[0], earliest)
    assert clock() == expected
    now[0] += 1
    assert clock() == expected + 1
