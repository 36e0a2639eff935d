"""Attendance of clients in the history and the list of clients: joined, in trouble, lost.

Sessions are in memory only (presence/sessions.py). This module writes to the store what must survive a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from fedplcc.aggregator.histories.run_warnings import doubts
from fedplcc.aggregator.ledger.audited import AuditLog
from fedplcc.aggregator.ledger.changes import Changes, Write
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.presence.allowances import Allowances
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.aggregator.rounds.doubted_model import failed
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.errors import CodeNotAllowed, FirstModelDiffers, WeightsMissing
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Client, ClientProblem, Environment, Event, Run

MAX_ANNOUNCED = 32
"""Most joins of one instance, each with changed facts, that the history records."""
MAX_PROBLEMS = 32
"""Most problems of one client that the history records; a task that the client finishes resets the count."""
HOURLY_ANNOUNCED = 2 * MAX_ANNOUNCED
"""Most joins of one client that the history records in an hour, of all its instances."""
HOURLY_PROBLEMS = 4 * MAX_PROBLEMS
"""Most problems of one client that the history records in an hour, whatever it finishes."""
HOURLY_CHANGES = 4
"""Most changes of one client's environment that one run's history records in an hour."""
MAX_NAMED_CHANGES = 4
"""Most changed facts of an environment that an event names; it counts the others."""
MAX_SHOWN = 64
"""Most characters of such a fact's name or value that an event has."""

OWNERS_REFUSALS = frozenset(error.reason for error in (CodeNotAllowed, WeightsMissing))
"""Problems that are refusals: the owner of a site has not allowed what a run asks for."""

MAX_LEFT_OUT = 32
"""Most impossible readings of one instance that the log names."""

log = get_logger(__name__)


class Attendance:
    """Records what happens to clients' sessions."""

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        store: Store,
        metrics: AggregatorMetrics,
        audit: AuditLog | None,
        monotonic_clock: Callable[[], float],
    ) -> None:
        self._ledger, self._sessions, self._store, self._metrics = ledger, sessions, store, metrics
        self._audit = audit
        self._joins = Allowances(HOURLY_ANNOUNCED, monotonic_clock)
        self._problems = Allowances(HOURLY_PROBLEMS, monotonic_clock)
        self._changes = Allowances(HOURLY_CHANGES, monotonic_clock)

    def joined(self, changes: Changes, session: Session, audited: Sequence[Write]) -> None:
        """Record a join of a new client, of another instance or with changed facts, and the audit's record of it."""
        client, now = session.client, changes.now
        known = self._store.find_client(client.client_id)
        record = replace(client, last_seen_at=now, problem=session.problem)
        same = None if known is None else replace(known, last_seen_at=now, smallest_side=client.smallest_side)
        has_changed = not session.num_announced or same != record
        if has_changed and session.num_announced < MAX_ANNOUNCED and self._joins.suffices(client.client_id):
            left_out = _left_out(self._joins.num_refused(client.client_id))
            data = {"domain": client.domain, "num_examples": client.num_examples, **left_out}
            event = Event(type="client_joined", client_id=client.client_id, data=data, time=now)
            changes.record(event, record)
            changes.note(audited)
            if known is not None and known.environment != client.environment:
                facts = environment_change(known.environment, client.environment)
                self._record_change(changes, client, Event(type="environment_changed", data=facts))
            if known is not None and known.num_examples != client.num_examples:
                numbers = {"before": known.num_examples, "num_examples": client.num_examples}
                self._record_change(changes, client, Event(type="client_data_changed", data=numbers))
            if known is None:
                changes.afterwards.append(lambda: self._metrics.clients.registered(1))

            def announced() -> None:
                session.num_announced += (
                    1  # after the write: while the store is unavailable the client joins repeatedly
                )
                self._joins.take(client.client_id)

            changes.afterwards.append(announced)

    def reported(self, session: Session, problem: ClientProblem) -> None:
        """Record a problem that the operator of a client should know."""
        self._metrics.clients.reported_problem()
        if self._audit is not None and problem.reason in OWNERS_REFUSALS:
            run_id = _run_id_of(session, self._ledger.find_open(session.heartbeat.run_id))
            where = f"{run_id}/{session.client.client_id}"
            self._audit.refused_here("Heartbeat", where, problem.reason)
        client_id = session.client.client_id
        if session.num_problems < MAX_PROBLEMS and self._problems.suffices(client_id):
            self._ledger.together(lambda changes: self._record_problem(changes, session, problem))
            self._problems.take(client_id)
        self._sessions.record_problem(session, problem)

    def measured(self, session: Session) -> None:
        """Log each impossible reading that was left out of the last heartbeat, once."""
        logged = session.logged_left_out
        for name, why in session.heartbeat.left_out.items():
            if name not in logged and len(logged) < MAX_LEFT_OUT:
                logged.add(name)
                log.warning("reading_left_out", client_id=session.client.client_id, reading=name, reason=why)

    def lost(self, changes: Changes, session: Session) -> None:
        """Record that a client's lease has run out: it is lost, or has left if its trainer said so."""
        now, client_id = changes.now, session.client.client_id
        last_seen_at = now - self._sessions.silent_s(session)
        client = replace(session.client, last_seen_at=last_seen_at, problem=session.problem)
        has_left = session.heartbeat.is_leaving
        gone = Event(type="client_left") if has_left else Event(type="client_lost")
        changes.record(replace(gone, client_id=client_id, time=now), client)

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
            smallest_side=session.client.smallest_side,
        )

    def _record_problem(self, changes: Changes, session: Session, problem: ClientProblem) -> None:
        client = replace(session.client, problem=problem, last_seen_at=changes.now)
        data = asdict(problem) | _left_out(self._problems.num_refused(session.client.client_id))
        event = Event(
            type="client_problem",
            run_id=_run_id_of(session, changes.find_open(session.heartbeat.run_id)),
            round=session.heartbeat.round,
            client_id=client.client_id,
            data=data,
            time=changes.now,
        )
        changes.record(event, client)
        if problem.reason == FirstModelDiffers.reason:
            self._doubted(changes, event)

    def _doubted(self, changes: Changes, problem: Event) -> None:
        """End a run whose first model is not what most of its clients make."""
        run = changes.find_open(problem.run_id)
        if run is None:
            return
        found, makers = doubts(self._store, run, problem)
        after = failed(run, found, makers)
        if after is not run:
            changes.step(run, after)

    def _record_change(self, changes: Changes, client: Client, changed: Event) -> None:
        """Record in every open run of this client what changed of it.

        That is its machine, so that its bytes may no longer repeat, or the number of its samples, by which it weighs.
        """
        for run in changes.runs.values():
            if client.client_id in run.roster and run.current_round is not None:
                place = (client.client_id, run.run_id, changed.type)
                if not self._changes.suffices(place):
                    continue
                event = replace(
                    changed,
                    run_id=run.run_id,
                    round=run.round_number,
                    client_id=client.client_id,
                    data={**changed.data, **_left_out(self._changes.num_refused(place))},
                    time=changes.now,
                )
                changes.record(event)
                changes.afterwards.append(partial(self._changes.take, place))


def environment_change(before: Environment, after: Environment) -> dict[str, Any]:
    """Return what an event says of a changed environment: old and new value of a few facts, and how many changed."""
    old, new = dict(_facts(before)), dict(_facts(after))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    shown = {
        name[:MAX_SHOWN]: [old.get(name, "")[:MAX_SHOWN], new.get(name, "")[:MAX_SHOWN]]
        for name in names[:MAX_NAMED_CHANGES]
    }
    return {"changed": shown, "num_changed": len(names)}


def _facts(environment: Environment) -> Iterator[tuple[str, str]]:
    yield from (("cpu", environment.cpu), ("device", environment.device), ("platform", environment.platform))
    yield from ((f"packages.{name}", version) for name, version in environment.packages.items())


def _left_out(num: int) -> dict[str, int]:
    """Return what an event says of those before it that were left out; nothing if none were."""
    return {"num_left_out": num} if num else {}


def _run_id_of(session: Session, run: Run | None) -> str:
    """Return the id of the open run that a client's heartbeat names; empty if there is none, or it is not the client's."""
    return run.run_id if run is not None and session.client.client_id in run.roster else ""
