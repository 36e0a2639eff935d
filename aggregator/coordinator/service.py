"""The coordinator: the use cases of runs, rounds and updates. It imports neither gRPC nor a particular store.

The use cases of RunService and RoundService in domain types: permissions, and the pure step of rounds/machine/ for each.
The parts: ledger/ makes steps durable, incoming/ takes bytes and results, work/ aggregates, garbage/ removes blobs.

Any thread may call a method. Reading waits for nobody, and changes that arrive together are one transaction. Long work
(the fold, clustering, checks of blobs) runs outside the lock, in `work` and in the caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedplcc.aggregator.aggregating.round_work import RoundWork
from fedplcc.aggregator.coordinator.approvals import Approvals
from fedplcc.aggregator.coordinator.artifacts import Artifacts
from fedplcc.aggregator.coordinator.attendance import Attendance
from fedplcc.aggregator.coordinator.deletion import Deletion
from fedplcc.aggregator.coordinator.extensions import Extensions
from fedplcc.aggregator.coordinator.leases import Leases
from fedplcc.aggregator.coordinator.memberships import Memberships
from fedplcc.aggregator.coordinator.next_tasks import NextTasks
from fedplcc.aggregator.coordinator.prototype_maps import PrototypeMaps
from fedplcc.aggregator.coordinator.request_ids import Requests
from fedplcc.aggregator.coordinator.run_creation import RunCreation
from fedplcc.aggregator.coordinator.run_labels import Labels
from fedplcc.aggregator.coordinator.steering import Steering
from fedplcc.aggregator.garbage.collection import GarbageCollection
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.histories.layouts import Layouts
from fedplcc.aggregator.incoming.commits import Commits
from fedplcc.aggregator.incoming.initial_models import InitialModels
from fedplcc.aggregator.incoming.inline_blobs import SmallBlobs
from fedplcc.aggregator.incoming.space import Space
from fedplcc.aggregator.incoming.transfers import Transfers
from fedplcc.aggregator.ledger.audited import AuditLog
from fedplcc.aggregator.ledger.changes import Changes, Write
from fedplcc.aggregator.ledger.ledger import Ledger, Listener
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.ledger.parking import without_raising
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.aggregator.rounds import results, tasks
from fedplcc.aggregator.rounds.class_results import SUMMARIES
from fedplcc.aggregator.rounds.configuration import document_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.chance import RunWarning
from fedplcc.shared.errors import (
    ClientNotFound,
    IdentityMismatch,
    MalformedRequest,
    NotAMember,
    StoreUnavailable,
)
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.clock import Clock, SteadyClock
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.steering import Verb
from fedplcc.shared.types import (
    BlobRef,
    Client,
    ClientActivity,
    ClientLog,
    ClientProblem,
    CommittedUpdate,
    Evaluation,
    Event,
    EventQuery,
    Heartbeat,
    LogLevel,
    Membership,
    Round,
    Run,
    Task,
    TaskKind,
    Update,
)

log = get_logger(__name__)


class Coordinator:
    """Runs, rounds and updates of one aggregator."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        limits: Limits | None = None,
        keep: Keep | None = None,
        *,
        audit: AuditLog | None = None,
        wall_clock: Clock | None = None,
        monotonic_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._blobs, self._metrics = store, blobs, metrics
        self._limits, self._audit = limits or Limits(), audit
        self._sessions = Sessions(self._limits.lease_s, monotonic_clock)
        self._ledger = Ledger(
            store,
            blobs,
            metrics,
            self._sessions,
            wall_clock=wall_clock or SteadyClock(),
            monotonic_clock=monotonic_clock,
            pending_days=self._limits.pending_days,
        )
        self._layouts, self.space = Layouts(store, blobs), Space(self._ledger, blobs)
        self.transfers = Transfers(
            self._ledger, self._sessions, store, blobs, self._layouts, self.space, metrics, self._limits
        )
        self.small_blobs = SmallBlobs(blobs, max_inline_bytes=self._limits.max_inline_bytes)
        self.initial_models = InitialModels(
            blobs, max_blob_bytes=self._limits.max_blob_bytes, accepted=self._accepted_model
        )
        self.garbage_collection = GarbageCollection(
            self._ledger, store, blobs, metrics, keep or Keep(), clock=monotonic_clock
        )
        self._artifacts = Artifacts(self._ledger, store, blobs)
        self.prototype_maps = PrototypeMaps(self._ledger, store, blobs, keep or Keep())
        self._requests = Requests(store)
        self._run_creation = RunCreation(
            self._ledger,
            store,
            self._requests,
            blobs,
            self.initial_models,
            self._artifacts.find,
            self._limits,
            creators=store.open_run_creators(),
            audit=audit,
            monotonic_clock=monotonic_clock,
        )
        self._extensions = Extensions(self._ledger, store, keep or Keep())
        self._memberships = Memberships(
            ledger=self._ledger, store=store, extensions=self._extensions, limits=self._limits
        )
        self._attendance = Attendance(self._ledger, self._sessions, store, metrics, audit, monotonic_clock)
        self.leases = Leases(
            self._ledger, self._sessions, self._attendance, monotonic_clock, stop_s=self._limits.stop_s
        )
        self._tasks = NextTasks(
            self._ledger,
            self._sessions,
            metrics,
            creator_of=self._run_creation.creator_of,
            starter_of=self._run_creation.starter_of,
        )
        self.labels = Labels(self._ledger, store, self._requests, self._audited)
        self._steering = Steering(
            self._ledger,
            store,
            self._requests,
            self.space,
            self._extensions,
            self._run_creation,
            self.leases,
            self._audited,
        )
        self._approvals = Approvals(self._ledger, self._audited)
        self._deletion = Deletion(
            self._ledger,
            store,
            blobs.uploads,
            self.garbage_collection,
            self._sessions,
            self._attendance,
            metrics,
            self._audited,
        )
        self._round_work = RoundWork(
            self._ledger,
            self._layouts,
            store,
            blobs,
            metrics,
            self._limits.fold_block_elements,
            monotonic_clock,
            self.small_blobs.expect,
        )
        self._commits = Commits(
            self._ledger, self._sessions, self.transfers, self._layouts, store, blobs, metrics, self._limits
        )
        metrics.set_clocks(now=self._ledger.now, monotonic_clock=monotonic_clock, folder=blobs.folder)
        metrics.clients.series.held_bytes = blobs.uploads.held_bytes
        metrics.clients.registered(len(store.list_clients()))
        self._ledger.recover()

    @property
    def max_inline_bytes(self) -> int:
        """Most bytes of blobs that a commit may carry."""
        return self._limits.max_inline_bytes

    # Runs, as the gateway sees them

    def create_run(self, request_id: str, document: Mapping[str, Any]) -> Run:
        """Create a run; see `RunCreation.create`."""
        try:
            return self._run_creation.create(request_id, document)
        except StoreUnavailable:
            self.space.look()  # makes room, or waits while another thread makes it
            return self._run_creation.create(request_id, document)

    def get_run(self, run_id: str) -> Run:
        """One run.

        Raises:
            RunNotFound: There is none of this id.
        """
        return self._explained(self._ledger.get(run_id))

    def best_round(self, run: Run) -> int | None:
        """The best round of a run by validation; None if none was validated."""
        best = self._ledger.best(run)
        return None if best is None else best.round

    def warnings(self, run: Run) -> tuple[RunWarning, ...]:
        """The warnings about a run: trouble with which it goes on all the same."""
        return self._ledger.warnings(run)

    def list_runs(self, *, limit: int, before: str = "") -> list[Run]:
        """Runs, newest first, from the one after `before`."""
        if before:
            self._ledger.status(before)
        found = self._store.list_runs(limit=limit, before=before)
        damaged = {run_id: self._ledger.get(run_id) for run_id in self._ledger.damaged_runs()}
        known = (self._ledger.find_open(run.run_id) or damaged.get(run.run_id) or run for run in found)
        return [self._explained(run) for run in known]

    def list_rounds(self, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        """Rounds of a run in order, without updates and evaluations."""
        self._ledger.status(run_id)
        return self._store.list_rounds(run_id, after=after, limit=limit)

    def list_evaluations(
        self, run_id: str, number: int | None = None, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Evaluation]]:
        """Evaluation reports of a run or of one round, by round and client, from the one after `after`."""
        self._ledger.status(run_id)
        return self._store.list_evaluations(run_id, number, after=after, limit=limit)

    def list_events(self, query: EventQuery) -> list[Event]:
        """Return the events that match the query. A run that the query names must exist."""
        if query.run_id:
            self._ledger.status(query.run_id)
        return self._store.list_events(query)

    def list_clients(self, *, after: str = "", limit: int | None = None) -> list[Client]:
        """Clients that ever joined, by id, from the one after `after`, with their current state."""
        clients = [self._attendance.shown(client) for client in self._store.list_clients(after=after, limit=limit)]
        revoked = self._store.revoked_holders(Role.CLIENT.value)
        return [
            replace(
                each,
                held_bytes=self._blobs.uploads.held_bytes(each.client_id),
                is_revoked=each.client_id in revoked,
            )
            for each in clients
        ]

    def client_log(self, client_id: str, *, after: int, level: LogLevel) -> ClientLog:
        """Log lines that the owner of a client's site lets out, after a number, of a level or a graver one.

        Raises:
            ClientNotFound: No client of this id ever joined.
        """
        if self._store.find_client(client_id) is None:
            raise ClientNotFound(f"no client {client_id[:64]!r} ever joined")
        return self._sessions.logs.of(client_id, after=after, level=level)

    def manifest(self, run: Run) -> dict[str, Any]:
        """The content of run.json."""
        types = ("run_created", "run_started", "clients_admitted")
        events = self._store.list_events(EventQuery(run_id=run.run_id, types=types, limit=1000))
        committed = EventQuery(run_id=run.run_id, types=("round_committed",), limit=1, newest_first=True)
        events += self._store.list_events(committed)
        found = results.manifest(run, document_of(run), events)
        known = {name: found["clients"].get(name, {}) for name in run.roster if not run_facts.takes_no_part(run, name)}
        examples = [
            None if run_facts.evaluates_only(run, name) else each.get("num_examples", 0) for name, each in known.items()
        ]
        moved = self._layouts.round_bytes(run, examples)
        return found if moved is None else {**found, "round_bytes": moved.as_json()}

    def steer(self, run_id: str, verb: Verb, *, request_id: str = "") -> Run:
        """Steer a run; see `Steering.steer`."""
        return self._steering.steer(run_id, verb, request_id=request_id)

    def delete_run(self, run_id: str) -> int:
        """Delete a run that has ended; see `Deletion.delete_run`."""
        return self._deletion.delete_run(run_id)

    def forget_client(self, client_id: str) -> Client:
        """Forget a client that takes part in no open run; see `Deletion.forget_client`."""
        return self._deletion.forget_client(client_id)

    def artifact(self, run_id: str, number: int, kind: str) -> tuple[BlobRef, Path]:
        """The model or the prototypes of a committed round, and their file; see `Artifacts.find`."""
        return self._artifacts.find(run_id, number, kind)

    # Trainers

    def join(self, client: Client, token: str) -> Membership:
        """Let an instance of a trainer act for a client.

        Raises:
            ClientIdTaken: Another instance holds the client id.
            IdentityMismatch: The client was invited for another domain.
            MalformedRequest: The domain's name is reserved, or its name for people is another client's id.
        """
        if client.domain in SUMMARIES:
            raise MalformedRequest(f"a domain cannot be called {client.domain!r}: tables of accuracy have that column")
        if client.display_name not in ("", client.client_id) and self._store.find_client(client.display_name):
            raise MalformedRequest(f"display_name: {client.display_name!r} is another client's id; choose another")
        invited = self._store.invited_domain(client.client_id)
        if invited not in ("", client.domain):
            raise IdentityMismatch(
                f"client {client.client_id} says that its domain is {client.domain!r}, and it was invited for {invited!r}: "
                f"start the trainer without --domain, or invite it again for the other one"
            )
        session = self._sessions.join(client, token)
        audited = self._audited("Join", client.client_id)

        def change(changes: Changes) -> None:
            self._attendance.joined(changes, session, audited)
            changes.settle_joined(client.client_id)

        self._ledger.together(change)
        return self._memberships.of(client.client_id, None if self._audit is None else self._audit.head())

    def task(self, client_id: str, token: str) -> Task:
        """Return the client's current task, and record that the client has it. Reads memory only and waits for nothing."""
        return self._tasks.next_of(self._sessions.check(client_id, token))

    def task_if_connected(self, client_id: str, token: str) -> Task:
        """Return the same as `task`, without renewing the lease: an open stream alone is no sign of life.

        Raises:
            NotAMember: The lease has run out.
        """
        session = self._sessions.find(client_id)
        if session is None or session.token != token:
            raise NotAMember(f"client {client_id} has not joined, or its lease ran out", client_id=client_id)
        return self._tasks.next_of(session)

    def goes_without_saying(self, client_id: str, task: Task) -> bool:
        """Return whether a client need not be told to wait; see `tasks.has_done_its_part`."""
        return task.kind is TaskKind.WAIT and tasks.has_done_its_part(self._ledger.open_runs(), client_id)

    def heartbeat(self, heartbeat: Heartbeat, token: str) -> bool:
        """Record a sign of life with its consequences; return whether the client's work is still wanted."""
        is_wanted = self.sign_of_life(heartbeat, token)
        if self.has_consequences(heartbeat):
            self.draw_consequences(heartbeat, token)
        return is_wanted

    def sign_of_life(self, heartbeat: Heartbeat, token: str) -> bool:
        """Record a sign of life; return whether the client's work is still wanted. Waits for nothing."""
        session = self._sessions.check(heartbeat.client_id, token)
        self._sessions.record_heartbeat(session, heartbeat)
        self._attendance.measured(session)
        self._metrics.rounds.record_activity(
            heartbeat.run_id, heartbeat.round, heartbeat.client_id, heartbeat.activity, now=self._ledger.now()
        )
        if heartbeat.activity is ClientActivity.IDLE:
            if session.task is not None and session.task.kind is TaskKind.STOP:
                session.task = None
            return True
        wanted = self._ledger.find_open(heartbeat.run_id)
        task = None if wanted is None else tasks.task_in(wanted, heartbeat.client_id)
        return task is not None and task.round == heartbeat.round

    def has_consequences(self, heartbeat: Heartbeat) -> bool:
        """Whether something must be written after this sign of life. Waits for nothing."""
        if heartbeat.problem is not None:
            return True
        return heartbeat.activity is ClientActivity.IDLE and any(self.leases.stopping_runs())

    def draw_consequences(self, heartbeat: Heartbeat, token: str) -> None:
        """Record the problem that a sign of life reports, and end stopping runs that waited for the client."""
        session = self._sessions.check(heartbeat.client_id, token)
        if heartbeat.problem is not None:
            self._has_problem(session, heartbeat.run_id, heartbeat.problem)
        if heartbeat.activity is ClientActivity.IDLE:
            self.leases.end_stopping_runs()

    def _has_problem(self, session: Session, run_id: str, problem: ClientProblem) -> None:
        client_id, run = session.client.client_id, self._ledger.find_open(run_id)
        heard = self._approvals.heard(session, run, problem)
        if heard is None:
            self._ledger.wake([client_id])
            return
        problem = heard
        if run is None and run_id:
            problem = replace(problem, is_fatal=False)  # its run has ended meanwhile; it hinders nothing any more
        if problem not in (session.problem, session.problem_in(run_id)):
            self._attendance.reported(session, problem)
        if problem.is_fatal and run is not None and client_id in run.roster:
            self._sessions.record_hindrance(session, run_id, problem)
            self._ledger.wake([client_id])  # for the task of another run

    def commit_update(
        self,
        client_id: str,
        token: str,
        run_id: str,
        number: int,
        update: Update,
        inline: Sequence[bytes] = (),
    ) -> CommittedUpdate:
        """Make an update part of its round; see `Commits.commit_update`."""
        return self._commits.commit_update(client_id, token, run_id, number, update, inline)

    def report_evaluation(self, client_id: str, token: str, run_id: str, number: int, evaluation: Evaluation) -> None:
        """Add a report to its round; see `Commits.report_evaluation`."""
        self._commits.report_evaluation(client_id, token, run_id, number, evaluation)

    # Time and work, driven by app.py or by a simulation

    def tick(self) -> None:
        """End expired leases and stopping runs, drop absent clients of overdue rounds, set gauges."""
        self.leases.end_expired()
        with self._ledger.lock:
            self._ledger.let_time_pass()
            self.leases.end_stopping_runs()
        open_runs = self._ledger.open_runs()
        without_raising(self._metrics.clients.follow, self._sessions, open_runs)
        without_raising(lambda: self._metrics.runs.follow(open_runs, now=self._ledger.now()))
        are_open = {run.run_id for run in open_runs}
        self._layouts.forget(but_of=are_open)
        self._sessions.forget_hindrances(but_of=are_open)
        self._sessions.forget_progress(but_of={name for run in open_runs for name in run.roster})

    def work(self) -> bool:
        """Aggregate one round if one waits for it; return whether there was one.

        Raises:
            StoreUnavailable: The disk or the database is unavailable; the round still waits.
        """
        work = self.take_work()
        if work is not None:
            work()
        return work is not None

    def take_work(self, *, only_short: bool = False, retry_s: float = 0.0) -> Callable[[], None] | None:
        """Take the aggregation of one round, for any thread to call; see `RoundWork.take`."""
        work = self._round_work.take(only_short=only_short, retry_s=retry_s)
        return None if work is None else partial(self._work_after_collecting, work)

    def _work_after_collecting(self, work: Callable[[], None]) -> None:
        self.garbage_collection.catch_up()
        work()

    def has_ended(self, run_id: str) -> bool:
        """Whether this run has ended."""
        return self._ledger.status(run_id).is_final

    def subscribe(self, listener: Listener) -> None:
        """Call a function after every change."""
        self._ledger.subscribe(listener)

    # Parts of the above

    def _explained(self, run: Run) -> Run:
        """Return the run, with the reason if it waits for a failing disk or database; that reason cannot be stored."""
        fails = None if run.status.is_final else self._ledger.write_trouble.reason(run.run_id)
        return run if fails is None else replace(run, reason=fails)

    def _accepted_model(self, sha256: str) -> None:
        if self._audit is not None:
            self._audit.change_alone("UploadInitialModel", sha256)

    def _audited(self, method: str, target: str, request_id: str = "") -> Sequence[Write]:
        """Return what adds the audit's record of a change by the present caller; nothing in a simulation."""
        return () if self._audit is None else (self._audit.change(method, target, request_id),)
