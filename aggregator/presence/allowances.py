"""Allowances: how often each of many callers may do what leaves a line behind, in any hour, whatever its session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass

PERIOD_S = 3600.0
"""Length of an allowance's period."""
MAX_KEPT = 1000
"""Periods that are kept before those that have ended are dropped."""


@dataclass(slots=True)
class _Period:
    began: float
    num_taken: int = 0
    num_refused: int = 0
    """How often it did not suffice."""


class Allowances:
    """An allowance of `most` in a period for each caller. Any thread may call a method."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._periods: dict[Hashable, _Period] = {}

    def suffices(self, caller: Hashable) -> bool:
        """Whether something of a caller's allowance is left; if not, this is counted."""
        with self._lock:
            period = self._periods.get(caller)
            if period is None or self._has_ended(period) or period.num_taken < self._most:
                return True
            period.num_refused += 1
            return False

    def num_refused(self, caller: Hashable) -> int:
        """Return how often the caller's allowance did not suffice in its latest period."""
        with self._lock:
            period = self._periods.get(caller)
            return 0 if period is None else period.num_refused

    def take(self, caller: Hashable) -> None:
        """Take one of a caller's allowance; after the end of a period the next one begins."""
        with self._lock:
            period = self._periods.get(caller)
            if period is None or self._has_ended(period):
                self._drop_ended()
                period = self._periods[caller] = _Period(self._clock())
            period.num_taken += 1

    def _drop_ended(self) -> None:
        if len(self._periods) >= MAX_KEPT:
            self._periods = {caller: period for caller, period in self._periods.items() if not self._has_ended(period)}

    def _has_ended(self, period: _Period) -> bool:
        return self._clock() - period.began >= PERIOD_S
