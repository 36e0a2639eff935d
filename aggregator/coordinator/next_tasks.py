"""Tasks of clients: the next one, run by run in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.aggregator.rounds import tasks
from fedplcc.shared.types import (
    Task,
)


class NextTasks:
    """The tasks that open runs have for clients."""

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        metrics: AggregatorMetrics,
        *,
        creator_of: Callable[[str], str],
        starter_of: Callable[[str], str],
    ) -> None:
        """Give tasks of the runs of a ledger.

        Args:
            creator_of: Returns the caller that began a run, whose runs take turns with those of others.
            starter_of: Returns who that is, in words for the owner of a site.
        """
        self._ledger, self._sessions, self._metrics = ledger, sessions, metrics
        self._creator_of, self._starter_of = creator_of, starter_of

    def next_of(self, session: Session) -> Task:
        """Return the present task of a session's client, which has it from now on. It waits for nothing."""
        client_id, creator_of = session.client.client_id, self._creator_of

        def rank(run_id: str) -> tuple[bool, int, int]:
            return self._sessions.is_hindered(session, run_id), *session.turns.rank(run_id, creator_of(run_id))

        try:
            task = tasks.next_task(self._ledger.open_runs(), client_id, session.task, rank)
        except Exception:
            # One run has an error: it is parked, and the client gets the task of another.
            self._ledger.for_each(lambda run: tasks.task_in(run, client_id))
            task = tasks.next_task(self._ledger.open_runs(), client_id, session.task, rank)
        if task.run is not None and (session.task is None or session.task.key != task.key):
            session.turns.given(task.run.run_id, creator_of(task.run.run_id))
        if task.run is not None and (starter := self._starter_of(task.run.run_id)):
            task = replace(task, run=replace(task.run, started_by=starter))
        self._sessions.record_task(session, task)
        self._metrics.rounds.task_taken(task, now=self._ledger.now())
        return task
