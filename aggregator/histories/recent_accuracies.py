"""Mean accuracies of the last evaluated rounds of each run, for warnings.

Those of open runs are in memory, at most `ROUNDS` of each; the history has those of all runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.chance import ROUNDS, RunWarning, warnings_of
from fedplcc.shared.types import EventQuery, RoundPhase, Run

MAX_EVENTS = 200
"""Commits that are read at most: a run that evaluates more rarely is judged by fewer rounds, and gets no warning."""


class RecentAccuracies:
    """The last evaluated rounds of runs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_open: dict[str, tuple[tuple[int, float], ...]] = {}

    def warnings(self, run: Run, *, is_open: bool) -> tuple[RunWarning, ...]:
        """Return the warnings about a run."""
        return warnings_of(self._open(run) if is_open else self._stored(run), document_of(run), run.method)

    def committed(self, run: Run) -> tuple[RunWarning, ...]:
        """Note the latest round of an open run, which may have committed; returns the warnings about the run."""
        self._of_open[run.run_id] = found = self._open(run)
        return warnings_of(found, document_of(run), run.method)

    def ended(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._of_open.pop(run_id, None)

    def _open(self, run: Run) -> tuple[tuple[int, float], ...]:
        # Only `committed` writes: a caller that asks at the same moment must not bring back what is old.
        known = self._of_open.get(run.run_id)
        if known is None:
            known = self._stored(run)
        current = run.current_round
        if current is None or current.phase is not RoundPhase.COMMITTED or not current.results_json:
            return known
        newer = _evaluated(current.number, json.loads(current.results_json))
        return (*known, *(each for each in newer if not known or each[0] > known[-1][0]))[-ROUNDS:]

    def _stored(self, run: Run) -> tuple[tuple[int, float], ...]:
        """Read the last evaluated rounds from the history."""
        evaluation = document_of(run).get("evaluation")
        every = evaluation.get("every") if isinstance(evaluation, dict) else None
        limit = min(ROUNDS * (every if isinstance(every, int) else 1), MAX_EVENTS)
        query = EventQuery(run_id=run.run_id, types=("round_committed",), newest_first=True, limit=limit)
        newest_first = [
            each
            for event in self._store.list_events(query)
            for each in _evaluated(event.round, event.data.get("metrics") or {})
        ]
        return tuple(reversed(newest_first[:ROUNDS]))


def _evaluated(number: int, line: dict[str, Any]) -> Iterator[tuple[int, float]]:
    """The round and its mean accuracy; nothing of a round that was not evaluated."""
    accuracy = (line.get("accuracy") or {}).get("mean")
    if accuracy is not None:
        yield number, float(accuracy)
