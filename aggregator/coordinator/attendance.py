"""Attendance of clients in the history and the list of clients: joined, in trouble, lost.

Sessions are in memory only (presence/sessions.py). This module writes to the store what must survive a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggregator.coordinator.audited import AuditLog
from aggregator.coordinator.changes import Changes, Write
from aggregator.coordinator.ledger import Ledger
from aggregator.metrics import AggregatorMetrics
from aggregator.presence.sessions import Session, Sessions
from aggregator.rounds import results
from aggregator.store.base import Store
from shared.errors import CodeNotAllowed, DownloadNotAllowed, FileNotAllowed
from shared.process.log import get_logger
from shared.types import Client, ClientProblem, Event, Run

MAX_ANNOUNCED = 32
"""Most joins of one instance, each with changed facts, that the history records."""
MAX_PROBLEMS = 32
"""Most problems of one client that the history records; a task that the client finishes resets the count."""

OWNERS_REFUSALS = frozenset(error.reason for error in (CodeNotAllowed, FileNotAllowed, DownloadNotAllowed))
"""Problems that are refusals: the owner of a site has not allowed what a run asks for."""

MAX_LEFT_OUT = 32
"""Most impossible readings of one instance that the log names."""

log = get_logger(__name__)


class Attendance:
    """Records what happens to clients' sessions."""

    def __init__(
        self, ledger: Ledger, sessions: Sessions, store: Store, metrics: AggregatorMetrics, audit: AuditLog | None
    ) -> None:
        self._ledger, self._sessions, self._store, self._metrics = ledger, sessions, store, metrics
        self._audit = audit

    def joined(self, changes: Changes, session: Session, audited: Sequence[Write]) -> None:
        """Record a join of a new client, of another instance or with changed facts, and the audit's record of it."""
        client, now = session.client, changes.now
        known = self._store.find_client(client.client_id)
        record = replace(client, last_seen_at=now, problem=session.problem)
        has_changed = not session.num_announced or known is None or replace(known, last_seen_at=now) != record
        if has_changed and session.num_announced < MAX_ANNOUNCED:
            data = {"domain": client.domain, "num_examples": client.num_examples}
            event = Event(type="client_joined", client_id=client.client_id, data=data, time=now)
            changes.record(event, record)
            changes.note(audited)
            if known is not None and known.environment != client.environment:
                self._record_environment_change(changes, client)
            if known is None:
                changes.afterwards.append(lambda: self._metrics.clients.registered(1))

            def announced() -> None:
                session.num_announced += (
                    1  # after the write: while the store is unavailable the client joins repeatedly
                )

            changes.afterwards.append(announced)

    def reported(self, session: Session, problem: ClientProblem) -> None:
        """Record a problem that the operator of a client should know."""
        self._metrics.clients.reported_problem()
        if self._audit is not None and problem.reason in OWNERS_REFUSALS:
            run_id = _run_id_of(session, self._ledger.find_open(session.heartbeat.run_id))
            where = f"{run_id}/{session.client.client_id}"
            self._audit.refused_here("Heartbeat", where, problem.reason)
        if session.num_problems < MAX_PROBLEMS:
            self._ledger.together(lambda changes: self._record_problem(changes, session, problem))
        self._sessions.record_problem(session, problem)

    def measured(self, session: Session) -> None:
        """Log each impossible reading that was left out of the last heartbeat, once."""
        logged = session.logged_left_out
        for name, why in session.heartbeat.left_out.items():
            if name not in logged and len(logged) < MAX_LEFT_OUT:
                logged.add(name)
                log.warning("reading_left_out", client_id=session.client.client_id, reading=name, reason=why)

    def lost(self, changes: Changes, session: Session) -> None:
        """Record that a client's lease has run out."""
        now, client_id = changes.now, session.client.client_id
        last_seen_at = now - self._sessions.silent_s(session)
        client = replace(session.client, last_seen_at=last_seen_at, problem=session.problem)
        changes.record(Event(type="client_lost", client_id=client_id, time=now), client)

    def shown(self, client: Client) -> Client:
        """Return a stored client with its current state."""
        session = self._sessions.find(client.client_id)
        if session is None or not self._sessions.is_connected(client.client_id):
            return client
        return replace(
            client,
            is_connected=True,
            activity=session.heartbeat.activity,
            run_id=session.heartbeat.run_id,
            round=session.heartbeat.round,
            progress=session.heartbeat.progress,
            last_seen_at=self._ledger.now() - self._sessions.silent_s(session),
            problem=session.problem,
            readings=session.heartbeat.readings,
        )

    def _record_problem(self, changes: Changes, session: Session, problem: ClientProblem) -> None:
        client = replace(session.client, problem=problem, last_seen_at=changes.now)
        data = {"reason": problem.reason, "detail": problem.detail, "hint": problem.hint, "is_fatal": problem.is_fatal}
        event = Event(
            type="client_problem",
            run_id=_run_id_of(session, changes.find_open(session.heartbeat.run_id)),
            round=session.heartbeat.round,
            client_id=client.client_id,
            data=data,
            time=changes.now,
        )
        changes.record(event, client)

    def _record_environment_change(self, changes: Changes, client: Client) -> None:
        """Record in every open run of this client that its environment changed, so that its bytes may no longer repeat."""
        for run in changes.runs.values():
            if client.client_id in run.roster and run.current_round is not None:
                entry = results.roster_entry(client)["environment"]
                changes.record(
                    Event(
                        type="environment_changed",
                        run_id=run.run_id,
                        round=run.round_number,
                        client_id=client.client_id,
                        data={"environment": entry},
                        time=changes.now,
                    )
                )


def _run_id_of(session: Session, run: Run | None) -> str:
    """Return the id of the open run that a client's heartbeat names; empty if there is none, or it is not the client's."""
    return run.run_id if run is not None and session.client.client_id in run.roster else ""
