"""The ledger: the one way to change a run.

A pure step of rounds/machine.py returns the next state, and rounds/settling.py takes the steps that follow by themselves.
One transaction writes the last state and the events in between. Only then is the state in memory replaced, and listeners
are called. A crash at any point loses nothing that was acknowledged: the next start reads the open runs and settles them
by the same path.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from aggregator.computation.aggregation import count_prototypes
from aggregator.coordinator.event_log import log_event
from aggregator.coordinator.parking import check_numbers, why_parked, without_raising
from aggregator.coordinator.write_trouble import WriteTrouble
from aggregator.metrics import AggregatorMetrics
from aggregator.presence.deadlines import Deadlines
from aggregator.presence.sessions import Sessions
from aggregator.rounds import machine, results
from aggregator.rounds.configuration import config_of
from aggregator.rounds.events import events_between
from aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from aggregator.rounds.settling import Surroundings, concerns, is_looked_at, may_settle, settled
from aggregator.rounds.tasks import task_in
from aggregator.store.base import ControlRequest, Store, Transaction
from aggregator.store.blobs.blob_store import BlobStore
from shared.config.run import RunConfig, canonical_json
from shared.errors import FedplccError, RunNotFound, StoreUnavailable
from shared.process.clock import not_before
from shared.process.failpoints import failpoint
from shared.process.log import get_logger
from shared.tensors import prototypes_from_bytes
from shared.types import (
    Client,
    Evaluation,
    Event,
    EventQuery,
    PrototypeCounts,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)

log = get_logger(__name__)

RESTARTS = 100
"""Latest restarts of a run that are looked through for those of its open round."""

Listener = Callable[[bool], None]
"""Called after every change, from any thread; the argument says whether a task may have changed. It must return at once."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A change of one run with all that follows by itself, to be written in one transaction."""

    states: Sequence[Run]
    """The run before the change, after it, and after each step that it took by itself."""
    events: Sequence[Event]
    final: Run
    """The last state, with the time of the change."""
    update: Update | None = None
    evaluation: Evaluation | None = None
    request: ControlRequest | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether there is no other state and no event."""
        return not self.events and all(state is self.states[0] for state in self.states)

    def save(self, transaction: Transaction) -> None:
        """Write all but the events."""
        before, final = self.states[0], self.final
        for state in self.states[1:-1]:
            if state.current_round is not None and (
                final.current_round is None or state.current_round.number != final.current_round.number
            ):
                transaction.save_run(state)
        transaction.save_run(final)
        if self.update is not None:
            transaction.add_update(final.run_id, before.round_number, self.update)
        if self.evaluation is not None:
            transaction.add_evaluation(final.run_id, before.round_number, self.evaluation)
        if self.request is not None:
            transaction.add_control_request(self.request)
        for removed in _removed_updates(self.states):
            transaction.remove_update(final.run_id, before.round_number, removed)
        for client_id in _removed_reports(self.states):
            transaction.remove_evaluation(final.run_id, before.round_number, client_id)
        if final.current_round is not None:
            for blob in (final.current_round.model, final.current_round.prototypes):
                if blob is not None:
                    transaction.add_blob(blob)


class Ledger:
    """Open runs, equal in memory and in the store.

    A caller that reads a run in order to change it holds `lock` for both.
    """

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        sessions: Sessions,
        *,
        wall_clock: Callable[[], float],
        monotonic_clock: Callable[[], float],
        pending_days: float,
    ) -> None:
        self.lock = threading.RLock()
        self._store, self._blobs, self._metrics, self._sessions = store, blobs, metrics, sessions
        self.write_trouble = WriteTrouble(monotonic_clock)
        self._pending_s = pending_days * machine.DAY_S
        self._listeners: list[Listener] = []
        self._runs: dict[str, Run] = {run.run_id: run for run in store.open_runs()}
        self._configs: dict[str, RunConfig] = {}
        self._interrupted: dict[str, tuple[int, Collection[str]]] = {}
        """The open round of each run that an earlier process left, and its phases in which an aggregator was started."""
        # A run's times never decrease, so no duration in it is negative.
        self.now = not_before(wall_clock, max((run.updated_at for run in self._runs.values()), default=0.0))
        self._deadlines = Deadlines(sessions, wall_clock=self.now, monotonic_clock=monotonic_clock)

    def recover(self) -> None:
        """Take up the open runs after a restart: each settles by the normal path, all in one transaction.

        Each gets an event in its history. A run that cannot be read, or that another version wrote, is parked.
        """
        if not self._runs:
            return
        self._metrics.recovered()
        steps = [self._recovery(run) for run in self._runs.values()]
        self._write(steps)
        for step in steps:
            run = step.final
            log.info("run_recovered", run_id=run.run_id, round=run.round_number, status=run.status.value)
            without_raising(self._show_last_round, run.run_id)

    def _recovery(self, run: Run) -> _Step:
        now = self.now()
        phase = {} if run.current_round is None else {"phase": run.current_round.phase.value}
        event = Event(type="run_recovered", run_id=run.run_id, round=run.round_number, data=phase, time=now)
        try:
            self._interrupted[run.run_id] = self._interruptions(run)
            return self._settled_or_parked(run, self._with_counts(run), now, extra=[event])
        except StoreUnavailable:
            raise
        except Exception as error:
            return self._settled_or_parked(run, self._parked(run, error), now, extra=[event])

    def _interruptions(self, run: Run) -> tuple[int, Collection[str]]:
        """Return the number of the open round and the phases of it in which an aggregator was started, this one included."""
        current = run.current_round
        if current is None or not machine.has_open_round(run):
            return -1, ()
        query = EventQuery(run_id=run.run_id, types=("run_recovered",), newest_first=True, limit=RESTARTS)
        earlier = [event for event in self._store.list_events(query) if event.round == current.number]
        # An event of an earlier version has no phase: any phase may be the one.
        unknown = () if all("phase" in event.data for event in earlier) else tuple(RoundPhase)
        return current.number, {current.phase.value, *unknown, *(event.data.get("phase", "") for event in earlier)}

    def _show_last_round(self, run_id: str) -> None:
        """Set the metrics of an open run to its last committed round, which may be hours old."""
        run = self.find_open(run_id)
        number = None if run is None else machine.last_committed(run)
        if run is None or number is None:
            return
        current = run.current_round if number == run.round_number else self._store.find_round(run_id, number)
        if current is None:
            return
        try:
            counts = current.prototype_counts or self._count_stored(run, current)
        except (FedplccError, OSError) as error:
            log.warning("last_round_not_shown", run_id=run.run_id, round=current.number, detail=str(error))
            return
        self._metrics.runs.committed(run, replace(current, prototype_counts=counts))

    def _with_counts(self, run: Run) -> Run:
        """Return the run with counts of its open round's prototypes, also if an older version aggregated the round.

        Raises:
            PayloadCorrupt: The stored prototypes are gone or damaged.
        """
        current = run.current_round
        if current is None or current.phase is not RoundPhase.EVALUATING or current.prototype_counts is not None:
            return run
        return replace(run, current_round=replace(current, prototype_counts=self._count_stored(run, current)))

    def _count_stored(self, run: Run, current: Round) -> PrototypeCounts:
        assert current.prototypes is not None
        prototypes = prototypes_from_bytes(self._blobs.verified_path(current.prototypes.sha256).read_bytes())
        return count_prototypes(prototypes, len(config_of(run).data.classes))

    def get(self, run_id: str) -> Run:
        """One run.

        Raises:
            RunNotFound: There is none of this id.
        """
        with self.lock:
            run = self._runs.get(run_id) or self._store.find_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run

    def open_runs(self) -> list[Run]:
        """Runs that have not ended, oldest first."""
        with self.lock:
            return list(self._runs.values())

    def find_open(self, run_id: str) -> Run | None:
        """A run that has not ended."""
        with self.lock:
            return self._runs.get(run_id)

    def create(self, run: Run, *, request_id: str, request_hash: str, facts: Mapping[str, Any]) -> Run:
        """Write a new run, with more facts for its history; returns it settled."""
        data = {"config_hash": run.config_hash, **facts}
        created = Event(type="run_created", run_id=run.run_id, data=data, time=run.created_at)
        with self.lock:
            with self._transition([created]) as transaction:
                transaction.add_run(run, request_id=request_id, request_hash=request_hash)
                for blob in (run.model, run.prototypes):
                    if blob is not None:
                        transaction.add_blob(blob)
            self._runs[run.run_id] = run
            return self.step(run, run)

    def record(self, event: Event, client: Client | None = None) -> None:
        """Write an event that changes no run, together with the client that it changed."""
        with self.lock:
            with self._transition([event]) as transaction:
                if client is not None:
                    transaction.save_client(client)
            self._notify(tasks_changed=False)

    def subscribe(self, listener: Listener) -> None:
        """Call a function after every change."""
        with self.lock:
            self._listeners.append(listener)

    def for_each(self, work: Callable[[Run], object]) -> None:
        """Do something with every open run; an error in one parks that run, and the others follow.

        Raises:
            StoreUnavailable: Nothing can be written now.
        """
        with self.lock:
            for run in self.open_runs():
                try:
                    work(run)
                except StoreUnavailable:
                    raise
                except Exception as error:
                    self.park(run.run_id, error)

    def park(self, run_id: str, error: Exception) -> None:
        """Park an open run for an error in its own step."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is not None:
                try:
                    self.step(run, self._parked(run, error))
                except StoreUnavailable:
                    raise
                except Exception:
                    log.exception("run_not_parked", run_id=run_id)

    def let_time_pass(self) -> None:
        """Drop absent clients from overdue rounds, and mark runs that have no quorum."""
        with self.lock:
            self._deadlines.observe(self._runs.values())
            self.for_each(self._let_time_pass_for)

    def _let_time_pass_for(self, run: Run) -> None:
        expired = machine.expire(run, now=self.now(), pending_s=self._pending_s)
        if expired is not run:
            self.step(run, expired)
            return
        still_s = self._deadlines.stalled_s(run)
        moved_at = None if still_s is None else self.now() - still_s
        if run.status is not RunStatus.RUNNING:
            self._metrics.runs.waits(run.run_id, moved_at=moved_at, patience_s=None)
            return
        rule = self._config_of(run).quorum
        self._metrics.runs.waits(
            run.run_id,
            moved_at=moved_at,
            patience_s=None if rule.deadline_s is None else max(rule.deadline_s, rule.silence_s),
        )
        if not is_looked_at(run, has_deadline=rule.deadline_s is not None):
            return
        there = self._deadlines.presence(
            run, deadline_s=rule.deadline_s, silence_s=rule.silence_s, hard_deadline_s=rule.hard_deadline_s
        )
        after = machine.drop_absent(
            run,
            absent=there.absent,
            slow=there.slow,
            moving=there.moving,
            unknown=there.unknown,
            quorum=self.quorum_of(run),
            fails=rule.on_no_quorum == "fail",
            now=self.now(),
        )
        self.step(run, after)

    def quorum_of(self, run: Run) -> Quorum:
        """The quorum of a run's open round."""
        rule = self._config_of(run).quorum
        if rule.min_clients is None and not rule.every_domain:
            return WHOLE_COHORT
        cohort = () if run.current_round is None else run.current_round.cohort
        return Quorum(min_clients=rule.min_clients, domains=self._store.domains(cohort) if rule.every_domain else None)

    def settle(self, client_id: str) -> None:
        """Settle the open runs that a client's joining concerns: it may complete a roster."""
        self.for_each(lambda run: self.step(run, run) if concerns(run, client_id) else None)

    def change(self, run_id: str, change: Callable[[Run], Run], *, request: ControlRequest | None = None) -> Run:
        """Apply a pure step to a run; one transaction records the step and the request that asked for it.

        Raises:
            RunNotFound: There is none of this id.
        """
        with self.lock:
            run = self.get(run_id)
            return self.step(run, change(run), request=request)

    def step(
        self,
        before: Run,
        after: Run,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        request: ControlRequest | None = None,
        extra: Sequence[Event] = (),
    ) -> Run:
        """Settle a changed run, write it with its events, and call the listeners.

        If settling meets an error, the change itself is written, and the run is parked.
        """
        step = self._settled_or_parked(
            before, after, self.now(), update=update, evaluation=evaluation, request=request, extra=extra
        )
        if step.changes_nothing:
            if request is not None:
                with self._store.transaction() as transaction:
                    transaction.add_control_request(request)
            return before
        self._write([step])
        return step.final

    def _settled_or_parked(
        self,
        before: Run,
        after: Run,
        now: float,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        request: ControlRequest | None = None,
        extra: Sequence[Event] = (),
    ) -> _Step:
        """Return a step with all that follows by itself; after an error in that, with the run parked."""
        states, events = [before, after], [*extra]
        if after is not before:
            events += self._events(before, after, now)
        try:
            while (state := self._settled(states[-1], now)) is not states[-1]:
                happened = self._events(states[-1], state, now)
                states.append(state)
                events += happened
        except StoreUnavailable:
            raise
        except Exception as error:
            states.append(self._parked(states[-1], error))
            events += self._events(states[-2], states[-1], now)
        return _Step(states, events, replace(states[-1], updated_at=now), update, evaluation, request)

    def _parked(self, run: Run, error: Exception) -> Run:
        reason = why_parked(run, error)
        log.error("run_cannot_go_on", run_id=run.run_id, round=run.round_number, exc_info=error)
        return machine.park(run, reason)

    def _write(self, steps: Sequence[_Step]) -> None:
        """Write steps of different runs in one transaction, then replace the runs in memory and call the listeners."""
        with self._transition([event for step in steps for event in step.events]) as transaction:
            for step in steps:
                step.save(transaction)
        for step in steps:
            self._runs[step.final.run_id] = step.final
            if step.final.status.is_final:
                del self._runs[step.final.run_id]
                self._configs.pop(step.final.run_id, None)
                self._interrupted.pop(step.final.run_id, None)
        without_raising(lambda: self._notify(tasks_changed=any(map(self._changes_tasks, steps))))
        # Last: listeners must be called even if this fails.
        without_raising(self._observe, [step.states for step in steps])

    def _changes_tasks(self, step: _Step) -> bool:
        done = step.update or step.evaluation
        is_free = done is not None and self._is_wanted_elsewhere(done.client_id, step.final)
        return is_free or any(_asks_differently(step.states[0], state) for state in step.states)

    def _is_wanted_elsewhere(self, client_id: str, run: Run) -> bool:
        """Whether another run has work for a client that has just finished its part in this run."""
        others = (other for other in self._runs.values() if other.run_id != run.run_id)
        return any(task_in(other, client_id) is not None for other in others)

    @contextmanager
    def _transition(self, events: Sequence[Event]) -> Iterator[Transaction]:
        """Open the transaction that writes these events with their changes; each event has failpoints around it."""
        for event in events:
            failpoint("transition", event.type, "before")
        with self.write_trouble.writing("history"), self._store.transaction() as transaction:
            yield transaction
            for event in events:
                transaction.add_event(event)
        for event in events:
            failpoint("transition", event.type, "after")
            without_raising(log_event, event)

    def _settled(self, run: Run, now: float) -> Run:
        if not may_settle(run, self._sessions.is_connected):
            return run
        looks_for_clients = run.status is RunStatus.PENDING or machine.may_open_another(run)
        connected = self._sessions.connected() if looks_for_clients else ()
        if run.status is RunStatus.PENDING and not run.roster and not connected:
            return run
        config = self._config_of(run)
        around = Surroundings(
            rule=config.run,
            connected=connected,
            quorum=self.quorum_of,
            fails=config.quorum.on_no_quorum == "fail",
            commit=lambda evaluated: self._committed(evaluated, now),
        )
        return settled(run, around, now=now)

    def _committed(self, run: Run, now: float) -> Run:
        current = run.current_round
        assert current is not None
        assert current.prototype_counts is not None
        check_numbers(current)
        domains = self._store.domains(current.cohort)
        domains |= {client_id: evaluation.domain for client_id, evaluation in current.evaluations.items()}
        config = self._config_of(run)
        evaluated = config.algorithm.evaluated_models(config.method)
        num_global = current.prototype_counts.total
        line = results.metrics_line(current, domains=domains, num_global_prototypes=num_global, evaluated=evaluated)
        number, phases = self._interrupted.get(run.run_id, (-1, ()))
        timings = results.timings_line(current, now=now, interrupted=phases if number == current.number else ())
        return machine.commit_round(
            run, results_json=canonical_json(line), timings_json=canonical_json(timings), now=now
        )

    def _config_of(self, run: Run) -> RunConfig:
        """Return an open run's configuration, parsed once and held until the run ends."""
        config = self._configs.get(run.run_id)
        if config is None:
            config = self._configs[run.run_id] = config_of(run)
        return config

    def _events(self, before: Run, after: Run, now: float) -> list[Event]:
        events = events_between(before, after, now=now)
        admitted = set(after.roster) - set(before.roster)
        has_started = before.status is RunStatus.PENDING and after.status is RunStatus.RUNNING
        if has_started:
            admitted = set(after.roster)
        if not admitted:
            return events
        clients = [self._store.find_client(client_id) for client_id in sorted(admitted)]
        entries = {client.client_id: results.roster_entry(client) for client in clients if client is not None}
        if has_started:
            events = [replace(event, data={**event.data, "clients": entries}) for event in events]
        else:
            events.insert(0, Event(type="clients_admitted", run_id=after.run_id, data={"clients": entries}, time=now))
        environments = [entry["environment"] for entry in entries.values()]
        if any(environment != environments[0] for environment in environments):
            # Such a run is correct, but its bytes cannot be repeated on one type of machine.
            events.append(Event(type="environments_differ", run_id=after.run_id, time=now))
        return events

    def _observe(self, changed: Sequence[Sequence[Run]]) -> None:
        now = self.now()
        for states in changed:
            if states[-1].status.is_final and not states[0].status.is_final:
                self._metrics.runs.ended(states[-1], now=now)
        self._metrics.runs.follow(self._runs.values(), now=now)
        for states in changed:
            for before, after in itertools.pairwise(states):
                self._metrics.rounds.stepped(before, after, now=now)
                has_closed = machine.has_open_round(before) and not machine.has_open_round(after)
                if after.current_round is not None and has_closed:
                    self._metrics.runs.committed(after, after.current_round)

    def _notify(self, *, tasks_changed: bool) -> None:
        for listener in self._listeners:
            without_raising(listener, tasks_changed)


def _removed_updates(states: Sequence[Run]) -> list[Update]:
    """Updates that a change removed from the open round."""
    before, after = states[0].current_round, states[1].current_round
    if before is None or after is None or after.number != before.number:
        return []
    return [update for client_id, update in before.updates.items() if client_id not in after.updates]


def _removed_reports(states: Sequence[Run]) -> list[str]:
    """Clients whose report a change removed from the open round."""
    before, after = states[0].current_round, states[1].current_round
    if before is None or after is None or after.number != before.number:
        return []
    return [client_id for client_id in before.evaluations if client_id not in after.evaluations]


def _asks_differently(before: Run, after: Run) -> bool:
    """Whether a step may change the task of a client other than the one whose update or report caused it."""

    def what(run: Run) -> tuple[RunStatus, Mapping[str, str], int, RoundPhase | None, tuple[str, ...]]:
        phase, cohort = (None, ()) if run.current_round is None else (run.current_round.phase, run.current_round.cohort)
        return run.status, run.quarantined, run.round_number, phase, cohort

    return what(before) != what(after)
