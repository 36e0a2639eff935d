"""The ledger: the one way to change a run.

A pure step of rounds/machine.py returns the next state, and rounds/settling.py takes the steps that follow by themselves.
One transaction writes the last state and the events in between. Only then is the state in memory replaced, and listeners
are called. A crash at any point loses nothing that was acknowledged: the next start reads the open runs and settles them
by the same path.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from aggregator.computation.aggregation import count_prototypes
from aggregator.coordinator.event_log import log_event
from aggregator.coordinator.write_trouble import WriteTrouble
from aggregator.metrics import AggregatorMetrics
from aggregator.presence.deadlines import Deadlines
from aggregator.presence.sessions import Sessions
from aggregator.rounds import machine, results
from aggregator.rounds.configuration import config_of
from aggregator.rounds.events import events_between
from aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from aggregator.rounds.settling import Surroundings, is_looked_at, settled
from aggregator.rounds.tasks import task_in
from aggregator.store.base import ControlRequest, Store, Transaction
from aggregator.store.blobs.blob_store import BlobStore
from shared.config.run import canonical_json
from shared.errors import FedplccError, InvalidConfig, PayloadCorrupt, RunNotFound
from shared.process.clock import not_before
from shared.process.failpoints import failpoint
from shared.process.log import get_logger
from shared.reasons import AggregationFailed, Reason, Stated
from shared.tensors import prototypes_from_bytes
from shared.types import Client, Evaluation, Event, PrototypeCounts, Round, RoundPhase, Run, RunStatus, Update

log = get_logger(__name__)

Listener = Callable[[bool], None]
"""Called after every change, from any thread; the argument says whether a task may have changed. It must return at once."""


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
    ) -> None:
        self.lock = threading.RLock()
        self._store, self._blobs, self._metrics, self._sessions = store, blobs, metrics, sessions
        self.write_trouble = WriteTrouble(monotonic_clock)
        self._listeners: list[Listener] = []
        self._runs: dict[str, Run] = {run.run_id: run for run in store.open_runs()}
        # A run's times never decrease, so no duration in it is negative.
        self.now = not_before(wall_clock, max((run.updated_at for run in self._runs.values()), default=0.0))
        self._deadlines = Deadlines(sessions, wall_clock=self.now, monotonic_clock=monotonic_clock)

    def recover(self) -> None:
        """Read the open runs back after a restart: each settles by the normal path, with an event in its history."""
        if self._runs:
            self._metrics.recovered()
        for run in list(self._runs.values()):
            event = Event(type="run_recovered", run_id=run.run_id, round=run.round_number, time=self.now())
            try:
                self.step(run, self._with_counts(run), extra=[event])
            except PayloadCorrupt as error:
                log.error("run_unreadable", run_id=run.run_id, detail=error.detail)
                self._fail(run, AggregationFailed(round_number=run.round_number, detail=error.detail))
                continue
            except InvalidConfig as error:
                # Another version wrote this run. It must not stop the others.
                log.error("run_unreadable", run_id=run.run_id, detail=error.detail)
                self._fail(run, Stated(f"this version cannot read the run's configuration: {error.detail}"))
                continue
            log.info("run_recovered", run_id=run.run_id, round=run.round_number, status=run.status.value)
            self._show_last_round(run.run_id)

    def _fail(self, run: Run, reason: Reason) -> None:
        """End a run that cannot be settled."""
        now = self.now()
        failed = replace(run, status=RunStatus.FAILED, reason=reason, updated_at=now)
        with self._transition(events_between(run, failed, now=now)) as transaction:
            transaction.save_run(failed)
        del self._runs[run.run_id]
        self._observe([run, failed])

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

    def let_time_pass(self) -> None:
        """Drop absent clients from overdue rounds, and mark runs that have no quorum."""
        with self.lock:
            self._deadlines.observe(self._runs.values())
            for run in self.open_runs():
                rule = config_of(run).quorum
                still_s = self._deadlines.stalled_s(run)
                self._metrics.runs.waits(
                    run.run_id,
                    moved_at=None if still_s is None else self.now() - still_s,
                    patience_s=None if rule.deadline_s is None else max(rule.deadline_s, rule.silence_s),
                )
                if not is_looked_at(run, has_deadline=rule.deadline_s is not None):
                    continue
                there = self._deadlines.presence(run, deadline_s=rule.deadline_s, silence_s=rule.silence_s)
                after = machine.drop_absent(
                    run,
                    absent=there.absent,
                    moving=there.moving,
                    unknown=there.unknown,
                    quorum=self.quorum_of(run),
                    fails=rule.on_no_quorum == "fail",
                    now=self.now(),
                )
                self.step(run, after)

    def quorum_of(self, run: Run) -> Quorum:
        """The quorum of a run's open round."""
        rule = config_of(run).quorum
        if rule.min_clients is None and not rule.every_domain:
            return WHOLE_COHORT
        cohort = () if run.current_round is None else run.current_round.cohort
        return Quorum(min_clients=rule.min_clients, domains=self._store.domains(cohort) if rule.every_domain else None)

    def settle(self) -> None:
        """Settle every open run: a client that joined may complete a roster."""
        with self.lock:
            for run in self.open_runs():
                self.step(run, run)

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
        """Settle a changed run, write it with its events, and call the listeners."""
        now = self.now()
        states = [before, after]
        while (state := self._settled(states[-1], now)) is not states[-1]:
            states.append(state)
        if all(state is before for state in states) and not extra:
            if request is not None:
                with self._store.transaction() as transaction:
                    transaction.add_control_request(request)
            return before
        final = replace(states[-1], updated_at=now)
        pairs = zip(states, [*states[1:-1], final], strict=False)
        events = [*extra, *(event for old, new in pairs for event in self._events(old, new, now))]
        with self._transition(events) as transaction:
            for state in states[1:-1]:
                if state.current_round is not None and (
                    final.current_round is None or state.current_round.number != final.current_round.number
                ):
                    transaction.save_run(state)
            transaction.save_run(final)
            for removed in _removed_updates(before, after):
                transaction.remove_update(final.run_id, before.round_number, removed)
            if update is not None:
                transaction.add_update(final.run_id, before.round_number, update)
            if evaluation is not None:
                transaction.add_evaluation(final.run_id, before.round_number, evaluation)
            if request is not None:
                transaction.add_control_request(request)
            if final.current_round is not None:
                for blob in (final.current_round.model, final.current_round.prototypes):
                    if blob is not None:
                        transaction.add_blob(blob)
        self._runs[final.run_id] = final
        if final.status.is_final:
            del self._runs[final.run_id]
        done = update or evaluation
        is_free = done is not None and self._is_wanted_elsewhere(done.client_id, final)
        self._notify(tasks_changed=is_free or any(_asks_differently(before, state) for state in states))
        # Last: listeners must be called even if this fails.
        self._observe(states)
        return final

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
            log_event(event)

    def _settled(self, run: Run, now: float) -> Run:
        config = config_of(run)
        around = Surroundings(
            rule=config.run,
            connected=self._sessions.connected(),
            quorum=self.quorum_of,
            fails=config.quorum.on_no_quorum == "fail",
            commit=lambda evaluated: self._committed(evaluated, now),
        )
        return settled(run, around, now=now)

    def _committed(self, run: Run, now: float) -> Run:
        current = run.current_round
        assert current is not None
        assert current.prototype_counts is not None
        domains = self._store.domains(current.cohort)
        domains |= {client_id: evaluation.domain for client_id, evaluation in current.evaluations.items()}
        config = config_of(run)
        evaluated = config.algorithm.evaluated_models(config.method)
        num_global = current.prototype_counts.total
        line = results.metrics_line(current, domains=domains, num_global_prototypes=num_global, evaluated=evaluated)
        timings = results.timings_line(current, now=now)
        return machine.commit_round(
            run, results_json=canonical_json(line), timings_json=canonical_json(timings), now=now
        )

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

    def _observe(self, states: Sequence[Run]) -> None:
        now = self.now()
        if states[-1].status.is_final and not states[0].status.is_final:
            self._metrics.runs.ended(states[-1], now=now)
        self._metrics.runs.follow(self._runs.values(), now=now)
        for before, after in itertools.pairwise(states):
            self._metrics.rounds.stepped(before, after, now=now)
            if after.current_round is not None and machine.has_open_round(before) and not machine.has_open_round(after):
                self._metrics.runs.committed(after, after.current_round)

    def _notify(self, *, tasks_changed: bool) -> None:
        for listener in self._listeners:
            listener(tasks_changed)


def _removed_updates(before: Run, after: Run) -> list[Update]:
    """Updates that a step took out of the open round because they are damaged."""
    if before.current_round is None or after.current_round is None or before.round_number != after.round_number:
        return []
    kept = after.current_round.updates
    return [update for client_id, update in before.current_round.updates.items() if client_id not in kept]


def _asks_differently(before: Run, after: Run) -> bool:
    """Whether a step may change the task of a client other than the one whose update or report caused it."""

    def what(run: Run) -> tuple[RunStatus, Mapping[str, str], int, RoundPhase | None, tuple[str, ...]]:
        phase, cohort = (None, ()) if run.current_round is None else (run.current_round.phase, run.current_round.cohort)
        return run.status, run.quarantined, run.round_number, phase, cohort

    return what(before) != what(after)
