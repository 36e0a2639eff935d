"""Times for people and files that a change of the wall clock cannot disturb."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since some moment."""


def since_boot() -> float:
    """Seconds since this machine started, of a clock that nobody sets; asleep it goes on where the system can tell."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class SteadyClock:
    """The wall clock as it was when this was made, and from then on a clock that nobody sets.

    A difference of two of its times is how long something took, also where the wall clock was wrong at first, or jumped by
    an hour in between.
    """

    def __init__(self, wall: Clock = time.time, steady: Clock = since_boot) -> None:
        self._steady = steady
        self._start = wall() - steady()

    def __call__(self) -> float:
        """The time, in seconds since 1970."""
        return self._start + self._steady()


def not_before(clock: Clock, earliest: float) -> Clock:
    """The clock, moved on where it is behind a time that has been: after a restart under a clock that was set back."""
    behind = earliest - clock()
    return clock if behind <= 0 else lambda: clock() + behind
