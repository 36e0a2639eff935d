"""Clocks whose differences are right even when somebody sets the wall clock.

The aggregator's times are those of one such clock, never before an open run's last change. A duration over a restart is
null: nothing shows whether somebody set the clock in between. What drops somebody who works goes by the monotonic clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""A function that returns seconds since a fixed moment."""


def since_boot() -> float:
    """Return seconds since this machine started; includes time asleep where the system offers CLOCK_BOOTTIME."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class SteadyClock:
    """A clock that starts at the wall clock's time and then follows a clock that nobody sets.

    A difference of two of its times is a true duration, even if the wall clock was wrong at the start or jumped in between.
    """

    def __init__(self, wall: Clock = time.time, steady: Clock = since_boot) -> None:
        self._steady = steady
        self._start = wall() - steady()

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        return self._start + self._steady()


def not_before(clock: Clock, earliest: float) -> Clock:
    """Return the clock, advanced so that it starts at `earliest` or later: it may have been set back before a restart."""
    behind = earliest - clock()
    return clock if behind <= 0 else lambda: clock() + behind
