"""The order in which rounds are aggregated: fair by run, and one round of a run at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from fedplcc.shared.types import Run

SHORT_PROTOTYPES = 8192
"""Prototypes of a round whose clustering is short: their similarities take about a second."""
SHORT_BYTES = 1 << 32
"""Size of a round's updates whose fold is short: a few seconds."""


class AggregationTurns:
    """Turns of runs whose rounds wait; any thread may call it.

    The run whose aggregations have taken the least time goes first, and of equal ones the one that waits longest for a turn.
    A run that is new to this process begins with the least time of the others, so that a long run does not pay for its past.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without turns; the clock is monotonic."""
        self._clock = clock
        self._lock = threading.Lock()
        self._used_s: dict[str, float] = {}
        self._began: dict[str, float] = {}
        self._rests_until: dict[str, float] = {}
        self._turn_of: dict[str, int] = {}
        self._turns = itertools.count(1)

    def begin(self, waiting: Sequence[Run], *, only_short: bool = False) -> Run | None:
        """Give one of the runs its turn; None if each is at work, rests, or is long where only short ones may begin."""
        with self._lock:
            now = self._clock()
            least_s = min(self._used_s.values(), default=0.0)
            free = [
                run
                for run in waiting
                if run.run_id not in self._began
                and self._rests_until.get(run.run_id, now) <= now
                and not (only_short and is_long(run))
            ]
            if not free:
                return None
            run = min(free, key=lambda run: (self._used_s.get(run.run_id, least_s), self._turn_of.get(run.run_id, 0)))
            self._turn_of[run.run_id] = next(self._turns)
            self._used_s.setdefault(run.run_id, least_s)
            self._began[run.run_id] = now
            return run

    def end(self, run_id: str, *, rest_s: float = 0.0) -> None:
        """End a run's turn; it has no other one for so many seconds."""
        with self._lock:
            now = self._clock()
            self._used_s[run_id] = self._used_s.get(run_id, 0.0) + now - self._began.pop(run_id)
            self._rests_until[run_id] = now + rest_s

    def forget(self, *, but_of: Collection[str]) -> None:
        """Forget every other run."""
        with self._lock:
            tables: tuple[dict[str, Any], ...] = (self._used_s, self._rests_until, self._turn_of)
            for table in tables:
                for run_id in table.keys() - set(but_of) - self._began.keys():
                    del table[run_id]


def is_long(run: Run) -> bool:
    """Whether the aggregation of a run's open round may take long, by the size of its updates."""
    updates = () if run.current_round is None else tuple(run.current_round.updates.values())
    num_prototypes = sum(update.num_prototypes for update in updates)
    size_bytes = sum(blob.size_bytes for update in updates for blob in update.payload.blobs)
    return num_prototypes > SHORT_PROTOTYPES or size_bytes > SHORT_BYTES
