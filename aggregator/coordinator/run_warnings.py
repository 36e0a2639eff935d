"""Warnings about runs from their history and from what their clients say: far updates, and clients that cannot train."""

from __future__ import annotations

from aggregator.presence.sessions import Sessions
from aggregator.rounds.far_updates import UPDATE_FAR, FarUpdate, far_in, warning_of
from aggregator.rounds.standing_still import cannot_train
from aggregator.store.base import Store
from shared.chance import RunWarning
from shared.types import ClientProblem, EventQuery, Run

MAX_FAR = 256
"""Newest far updates of a run that are looked through."""


class RunWarnings:
    """Warnings that need the history of a run or the present problems of its clients."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store, self._sessions = store, sessions
        self._far_of_open: dict[str, tuple[object, list[FarUpdate]]] = {}
        """Far updates of open runs, with the round and phase in which they were read: each is written as a phase ends."""

    def of(self, run: Run, *, is_open: bool) -> tuple[RunWarning, ...]:
        """Return the warnings about a run."""
        far = self._far(run) if is_open else self._stored(run)
        still = cannot_train(run, self._problems(run), far, self._makers(run)) if is_open else None
        return tuple(each for each in (warning_of(far), still) if each is not None)

    def ended(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._far_of_open.pop(run_id, None)

    def _far(self, run: Run) -> list[FarUpdate]:
        place = run.round_number, None if run.current_round is None else run.current_round.phase
        known = self._far_of_open.get(run.run_id)
        if known is None or known[0] != place:
            known = self._far_of_open[run.run_id] = place, self._stored(run)
        return known[1]

    def _stored(self, run: Run) -> list[FarUpdate]:
        query = EventQuery(run_id=run.run_id, types=(UPDATE_FAR,), newest_first=True, limit=MAX_FAR)
        return far_in(self._store.list_events(query))

    def _problems(self, run: Run) -> dict[str, ClientProblem]:
        """Problems that keep clients of the open round from their work."""
        cohort = () if run.current_round is None else run.current_round.cohort
        sessions = {name: self._sessions.find(name) for name in cohort}
        return {
            name: problem
            for name, session in sessions.items()
            if session is not None and (problem := session.problem_in(run.run_id)) is not None
        }

    def _makers(self, run: Run) -> tuple[str, ...]:
        """Who made the first model, where the open round is the one that begins with it."""
        first = self._store.find_round(run.run_id, 0) if run.round_number == 1 else None
        return () if first is None else tuple(sorted(first.updates))
