"""Warnings about runs from their history and from what their clients say: who decides too much, and who cannot train."""

from __future__ import annotations

import json

from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds import doubted_model, large_shares
from fedplcc.aggregator.rounds.configuration import config_of, document_of
from fedplcc.aggregator.rounds.doubted_model import FIRST_ROUND, doubters
from fedplcc.aggregator.rounds.far_updates import UPDATE_FAR, FarUpdate, far_in, warning_of
from fedplcc.aggregator.rounds.machine import round_waits, run_facts
from fedplcc.aggregator.rounds.standing_still import cannot_train
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.chance import RunWarning
from fedplcc.shared.scoring.scores import unfound_warning
from fedplcc.shared.types import ClientProblem, Event, EventQuery, Round, Run

MAX_FAR = 256
"""Newest far updates of a run that are looked through."""
MAX_PROBLEMS = 1000
"""Newest problems of a run's clients that are looked through."""
MAX_RUNS = 64
"""Runs whose warnings about the last round are remembered."""
PROBLEM = "client_problem"
"""Event of a client's problem."""


class RunWarnings:
    """Warnings that need the history of a run or the present problems of its clients."""

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store, self._sessions = store, sessions
        self._far_of_open: dict[str, tuple[object, list[FarUpdate]]] = {}
        """Far updates of open runs, with the round and phase in which they were read: each is written as a phase ends."""
        self._last: dict[str, tuple[int, tuple[RunWarning, ...]]] = {}
        """The warnings about the last committed round, with its number."""

    def of(self, run: Run, *, is_open: bool) -> tuple[RunWarning, ...]:
        """Return the warnings about a run."""
        far = self._far(run) if is_open else self._stored(run)
        still = cannot_train(run, self._problems(run), far, makers_of(self._store, run)) if is_open else None
        doubted = doubted_model.warning_of(*doubts(self._store, run)) if is_open else None
        found = (warning_of(far), still, doubted, *self._of_last(run))
        return tuple(each for each in found if each is not None)

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
        sessions = {name: self._sessions.find(name) for name in round_waits.asked_of(run)}
        return {
            name: problem
            for name, session in sessions.items()
            if session is not None and (problem := session.problem_in(run.run_id)) is not None
        }

    def _of_last(self, run: Run) -> tuple[RunWarning, ...]:
        """The warnings about the last committed round: one client's share, and classes that nobody's model finds."""
        number = run_facts.last_committed(run) or 0
        known = self._last.get(run.run_id)
        if known is None or known[0] != number:
            is_it = run.current_round is not None and run.round_number == number
            last = run.current_round if is_it else self._store.find_round(run.run_id, number) if number else None
            found = (
                () if last is None else (large_shares.warning_of(last), _capped(run, last), self._unfound(run, last))
            )
            known = number, tuple(each for each in found if each is not None)
            self._last = dict([*self._last.items()][1 - MAX_RUNS :]) | {run.run_id: known}
        return known[1]

    def _unfound(self, run: Run, last: Round) -> RunWarning | None:
        line = json.loads(last.results_json) if last.results_json else {}
        classes = document_of(run).get("data", {}).get("classes", ())
        return unfound_warning(line, classes, run.total_rounds) if line else None


def _capped(run: Run, last: Round) -> RunWarning | None:
    """The warning about capped shares; a configuration without [aggregation] may be of a version that nobody reads."""
    is_said = document_of(run).get("aggregation")
    return large_shares.capped_warning(last, config_of(run)) if is_said else None


def doubts(store: Store, run: Run, newest: Event | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return who makes another first model than was sent, and who sent it; nobody but in the round that begins with it."""
    makers = makers_of(store, run)
    if not makers:
        return (), ()
    query = EventQuery(run_id=run.run_id, types=(PROBLEM,), newest_first=True, limit=MAX_PROBLEMS)
    problems = [*store.list_events(query), *([] if newest is None else [newest])]
    return doubters(run, problems, makers), makers


def makers_of(store: Store, run: Run) -> tuple[str, ...]:
    """Return who made the first model, where the open round is the one that begins with it."""
    first = store.find_round(run.run_id, 0) if run.round_number == FIRST_ROUND else None
    return () if first is None else tuple(sorted(first.updates))
