"""The coordinator: runs, rounds and updates. It owns every transition and knows neither gRPC nor which store it has.

Every change goes one way: a pure step from rounds.py gives the next state; that state and the events it amounts to are
written in one transaction; then the state in memory is replaced and those who wait are told. A crash between any two lines
loses nothing that was answered: at the next start the open runs are read back and go on by the same path.

Methods may be called from any thread; one lock makes them take turns. Long work (the fold, clustering, checking a blob) is
done outside the lock, by `work` and in the caller's thread.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aggregator import results, rounds, tasks
from aggregator.aggregation import aggregate, config_of
from aggregator.fold import BLOCK_ELEMENTS
from aggregator.history import events_between
from aggregator.metrics import AggregatorMetrics
from aggregator.rounds import RunEvent
from aggregator.sessions import Session, Sessions
from aggregator.store.base import Store
from aggregator.store.blobs import BlobStore, Upload
from aggregator.validation import FEATURE_DIM, check_evaluation, check_first_model, check_update
from shared.errors import (
    BlobNotFound,
    BlobTooLarge,
    ChunkTooLarge,
    FedplccError,
    MalformedRequest,
    NotAMember,
    PayloadCorrupt,
    RequestIdReused,
    RoundNotFound,
    RunNotFound,
)
from shared.log import get_logger
from shared.methods.base import per_class_counts
from shared.run_config import canonical_json, parse_run_config
from shared.tensors import TensorTable, prototypes_from_bytes, prototypes_to_bytes, read_header
from shared.types import (
    GLOBAL_CLUSTER,
    BlobRef,
    Client,
    ClientActivity,
    ClientProblem,
    CommittedUpdate,
    Evaluation,
    Event,
    Heartbeat,
    Membership,
    Payload,
    PrototypeSet,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Task,
    TaskKind,
    Update,
)
from shared.version import VERSION

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the coordinator allows its trainers."""

    heartbeat_interval_s: float = 2.0
    lease_heartbeats: int = 5
    max_chunk_bytes: int = 1 << 20
    max_blob_bytes: int = 4 << 30
    fold_block_elements: int = BLOCK_ELEMENTS
    max_classes: int = 10_000
    max_readings: int = 32

    @property
    def lease_s(self) -> float:
        """How long a client id stays reserved after the last sign of life."""
        return self.heartbeat_interval_s * self.lease_heartbeats


Listener = Callable[[bool], None]
"""Called after every change, from any thread, with whether a task may have changed; must return at once."""


class Receiver:
    """One upload being received: chunks in order, then `finish`; `close` in any case."""

    def __init__(
        self,
        blobs: BlobStore,
        client_id: str,
        upload: Upload,
        guard: Callable[[], AbstractContextManager[None]],
        max_chunk_bytes: int,
    ) -> None:
        self._blobs, self._client_id, self._upload = blobs, client_id, upload
        self._guard, self._max_chunk_bytes = guard, max_chunk_bytes

    def write(self, offset_bytes: int, data: bytes) -> None:
        """Append a chunk.

        Raises:
            ChunkTooLarge, ChunkOutOfOrder, FailedPrecondition: It is over the limit, does not follow, or comes too late.
        """
        with self._guard():
            if len(data) > self._max_chunk_bytes:
                raise ChunkTooLarge(f"a chunk has at most {self._max_chunk_bytes} bytes, this one {len(data)}")
            self._upload.write(offset_bytes, data)

    def finish(self) -> None:
        """Check the whole and give it its name.

        Raises:
            BlobCorrupt: Bytes are missing or do not have the announced SHA-256.
        """
        with self._guard():
            self._upload.finish()

    def close(self) -> None:
        """Let go, whether the blob is complete or goes on later."""
        self._blobs.end_upload(self._client_id, self._upload)


class Coordinator:
    """Runs, rounds and updates of one aggregator."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        limits: Limits | None = None,
        *,
        wall_clock: Callable[[], float] = time.time,
        monotonic_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._blobs, self._metrics = store, blobs, metrics
        self._limits = limits or Limits()
        self._now, self._monotonic = wall_clock, monotonic_clock
        self._sessions = Sessions(self._limits.lease_s)
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._tables: dict[str, TensorTable] = {}
        self._refused: set[tuple[str, int, str, str]] = set()
        self._runs: dict[str, Run] = {run.run_id: run for run in store.open_runs()}
        self._recover()

    def _recover(self) -> None:
        """Take up the open runs again: each settles by the normal path, with a note in its history."""
        if self._runs:
            self._metrics.recoveries.inc()
        for run in list(self._runs.values()):
            event = Event(type="run_recovered", run_id=run.run_id, round=run.round_number, time=self._now())
            self._step(run, run, extra=[event])
            log.info(
                "run_recovered", extra={"run_id": run.run_id, "round": run.round_number, "status": run.status.value}
            )

    # Runs, as the gateway sees them

    def create_run(self, request_id: str, document: Mapping[str, Any]) -> Run:
        """Create a run, or return the one that this request id created before.

        Raises:
            InvalidConfig: The configuration is wrong.
            RequestIdReused: The request id came with another configuration.
            MalformedRequest: The request id is empty or too long.
        """
        if not 1 <= len(request_id) <= 128:
            raise MalformedRequest("a request id has 1 to 128 characters")
        config = parse_run_config(document)
        if len(config.data.classes) > self._limits.max_classes:
            raise MalformedRequest(f"data.classes: at most {self._limits.max_classes} classes")
        with self._lock:
            known = self._store.find_request(request_id)
            if known is not None:
                run_id, request_hash = known
                if request_hash != config.hash:
                    raise RequestIdReused(
                        f"request id {request_id!r} created run {run_id} with another configuration", run_id=run_id
                    )
                return self.get_run(run_id)
            prototypes = self._blobs.put(GLOBAL_CLUSTER, [prototypes_to_bytes(PrototypeSet.empty())])
            now = self._now()
            run = Run(
                run_id=f"{config.run.name}-{uuid.uuid4().hex[:8]}",
                name=config.run.name,
                status=RunStatus.PENDING,
                config_json=config.canonical_json,
                config_hash=config.hash,
                method=config.run.method,
                total_rounds=config.run.rounds,
                seed=config.run.seed,
                roster=config.run.clients or (),
                prototypes=prototypes,
                reason="waiting for clients to join",
                created_at=now,
                updated_at=now,
            )
            created = Event(type="run_created", run_id=run.run_id, data={"config_hash": config.hash}, time=now)
            with self._store.transaction() as transaction:
                transaction.add_run(run, request_id=request_id, request_hash=config.hash)
                transaction.add_blob(prototypes)
                transaction.add_event(created)
            self._runs[run.run_id] = run
            return self._step(run, run)

    def get_run(self, run_id: str) -> Run:
        """One run.

        Raises:
            RunNotFound: There is none of this id.
        """
        with self._lock:
            run = self._runs.get(run_id) or self._store.find_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return run

    def list_runs(self, *, limit: int, before: str = "") -> list[Run]:
        """Runs, newest first, from the one after `before`."""
        if before:
            self.get_run(before)
        with self._lock:
            return [self._runs.get(run.run_id, run) for run in self._store.list_runs(limit=limit, before=before)]

    def list_rounds(self, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        """Rounds of a run in order, without updates and evaluations."""
        self.get_run(run_id)
        return self._store.list_rounds(run_id, after=after, limit=limit)

    def list_evaluations(self, run_id: str, number: int | None = None) -> list[tuple[int, Evaluation]]:
        """Evaluation reports of a run by round and client."""
        self.get_run(run_id)
        return self._store.list_evaluations(run_id, number)

    def list_events(self, *, run_id: str = "", after: int = 0, limit: int = 1000) -> list[Event]:
        """Events with a greater sequence, in order."""
        if run_id:
            self.get_run(run_id)
        return self._store.list_events(run_id=run_id, after=after, limit=limit)

    def list_clients(self) -> list[Client]:
        """Every client that ever joined, with what is known of it now."""
        with self._lock:
            now = self._monotonic()
            return [self._client_now(client, now) for client in self._store.list_clients()]

    def manifest(self, run: Run) -> dict[str, Any]:
        """The content of run.json."""
        types = ("run_started", "clients_admitted")
        admissions = self._store.list_events(run_id=run.run_id, types=types, limit=1000)
        return results.manifest(run, json.loads(run.config_json), admissions)

    def pause(self, run_id: str, *, now: bool = False) -> Run:
        """Pause a run when its open round commits, or at once. Pausing a paused run changes nothing.

        Raises:
            RunNotFound, InvalidTransition: There is no such run, or it cannot be paused.
        """
        return self._change(run_id, lambda run: rounds.pause(run, now=now))

    def resume(self, run_id: str) -> Run:
        """Resume a run. Resuming a running one takes back a pause that waits."""
        return self._change(run_id, rounds.resume)

    def stop(self, run_id: str, *, reason: str = "") -> Run:
        """Stop a run. Stopping one that has ended returns it as it is."""
        with self._lock:
            self._change(run_id, lambda run: rounds.stop(run, reason=reason or "stopped by request"))
            self._end_stopping_runs()
            return self.get_run(run_id)

    def artifact(self, run_id: str, number: int, kind: str) -> tuple[BlobRef, Path]:
        """The model or the prototypes of a committed round, and the file to read them from; -1 is the last one.

        Raises:
            RunNotFound, RoundNotFound: There is no such run or committed round.
        """
        run = self.get_run(run_id)
        current: Run | Round | None = run if number < 0 else self._store.find_round(run_id, number)
        if isinstance(current, Round) and current.phase is not RoundPhase.COMMITTED:
            current = None
        blob = None if current is None or run.model is None else getattr(current, kind)
        if blob is None:
            which = "any round" if number < 0 else f"round {number}"
            raise RoundNotFound(f"run {run_id} has not committed {which}", run_id=run_id, round=number)
        return blob, self._blobs.path(blob.sha256)

    # Trainers

    def join(self, client: Client, token: str) -> Membership:
        """Make an instance the one that acts for a client.

        Raises:
            ClientIdTaken: Another instance holds the client id.
        """
        with self._lock:
            now = self._now()
            _session, is_new = self._sessions.join(client, token, self._monotonic())
            known = self._store.find_client(client.client_id)
            record = replace(client, last_seen_at=now, problem=None)
            if is_new or known is None or replace(known, last_seen_at=now) != record:
                joined = {"domain": client.domain, "num_examples": client.num_examples}
                event = Event(type="client_joined", client_id=client.client_id, data=joined, time=now)
                with self._store.transaction() as transaction:
                    transaction.save_client(record)
                    transaction.add_event(event)
            for run in list(self._runs.values()):
                self._step(run, run)
            self._notify(tasks_changed=False)
            return Membership(
                heartbeat_interval_s=self._limits.heartbeat_interval_s,
                lease_s=self._limits.lease_s,
                max_chunk_bytes=self._limits.max_chunk_bytes,
                max_blob_bytes=self._limits.max_blob_bytes,
                last_committed=self._store.last_committed(client.client_id),
                version=VERSION,
            )

    def task(self, client_id: str, token: str) -> Task:
        """The client's task now; it is remembered as given."""
        with self._lock:
            session = self._sessions.check(client_id, token, self._monotonic())
            session.task = tasks.next_task(self._runs.values(), client_id, session.task)
            return session.task

    def task_if_connected(self, client_id: str, token: str) -> Task:
        """As `task`, but no sign of life: an open stream alone keeps no lease.

        Raises:
            NotAMember: The lease has run out.
        """
        with self._lock:
            session = self._sessions.find(client_id)
            if session is None or session.token != token:
                raise NotAMember(f"client {client_id} has not joined, or its lease ran out", client_id=client_id)
            session.task = tasks.next_task(self._runs.values(), client_id, session.task)
            return session.task

    def heartbeat(self, heartbeat: Heartbeat, token: str) -> bool:
        """Record a sign of life; says whether the work that the client does is still wanted."""
        with self._lock:
            session = self._sessions.check(heartbeat.client_id, token, self._monotonic())
            session.heartbeat = heartbeat
            if heartbeat.problem is not None and heartbeat.problem != session.problem:
                self._record_problem(session, heartbeat.problem)
            if heartbeat.activity is ClientActivity.IDLE:
                if session.task is not None and session.task.kind is TaskKind.STOP:
                    session.task = None
                self._end_stopping_runs()
                return True
            wanted = self._runs.get(heartbeat.run_id)
            task = None if wanted is None else tasks.task_in(wanted, heartbeat.client_id)
            return task is not None and task.round == heartbeat.round

    def count_transfer(self, num_bytes: int, *, direction: str, kind: str) -> None:
        """Count payload bytes that were "sent" or "received"; kind is "model" or "prototypes"."""
        self._metrics.transfer_bytes.labels(direction, kind).inc(num_bytes)

    def count_resumed(self, *, direction: str) -> None:
        """Count a transfer that goes on from an offset."""
        self._metrics.transfers_resumed.labels(direction).inc()

    def open_download(self, client_id: str, token: str, sha256: str) -> tuple[BlobRef, str, Path]:
        """A blob of the client's present task, its kind ("model" or "prototypes"), and the file to read it from.

        Raises:
            BlobNotFound: The task does not name this blob.
        """
        with self._lock:
            session = self._sessions.check(client_id, token, self._monotonic())
            payload = session.task.payload if session.task else Payload()
        for kind, blobs in (("model", payload.tensor_groups), ("prototypes", payload.prototype_sets)):
            for blob in blobs:
                if blob.sha256 == sha256:
                    return blob, kind, self._blobs.path(sha256)
        raise BlobNotFound("the client's present task does not name this blob", sha256=sha256[:64])

    def upload_status(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> tuple[int, bool]:
        """Offset from which to send a blob, and whether it is stored already."""
        self._check_upload(client_id, token, run_id, number, blob)
        if self._blobs.uploaded(client_id, blob) or self._has_stored(client_id, blob):
            return blob.size_bytes, True
        return self._blobs.received_bytes(client_id, blob), False

    def begin_upload(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> Receiver | None:
        """Go on with an upload; None where the blob is stored already."""
        offset, is_complete = self.upload_status(client_id, token, run_id, number, blob)
        if is_complete:
            return None
        if offset:
            self.count_resumed(direction="received")
        upload = self._blobs.begin_upload(client_id, blob)

        @contextmanager
        def guard() -> Iterator[None]:
            with self._refusals(client_id, run_id, number):
                with self._lock:  # a chunk is a sign of life too, so that a slow upload keeps its lease
                    self._sessions.check(client_id, token, self._monotonic())
                yield

        return Receiver(self._blobs, client_id, upload, guard, self._limits.max_chunk_bytes)

    def commit_update(self, client_id: str, token: str, run_id: str, number: int, update: Update) -> CommittedUpdate:
        """Make an update part of its round. The same update again is answered as the first time.

        Raises:
            MalformedUpdate: A check of validation.py failed.
            BlobNotFound: A blob was not uploaded by this client.
            RoundClosed, NotInCohort, UpdateConflict, RunNotFound: See rounds.py.
        """
        with self._refusals(client_id, run_id, number):
            committed = CommittedUpdate(run_id, number, tuple(blob.sha256 for blob in update.payload.blobs))
            with self._lock:
                session = self._sessions.check(client_id, token, self._monotonic())
                run = self.get_run(run_id)
                if self._is_committed(run, number, update):
                    self._metrics.updates.labels("duplicate").inc()
                    return committed
                rounds.add_update(run, number, update, now=self._now())  # refuses early, before any blob is read
            update = self._checked(run, number, update, session.client)
            self._blobs.keep(client_id, update.payload.blobs)
            with self._lock:
                run = self.get_run(run_id)
                after = rounds.add_update(run, number, update, now=self._now())
                if after is run:
                    self._metrics.updates.labels("duplicate").inc()
                    return committed
                self._step(run, after, update=update)
                self._metrics.updates.labels("accepted").inc()
            self._blobs.forget(client_id)
            return committed

    def report_evaluation(self, client_id: str, token: str, run_id: str, number: int, evaluation: Evaluation) -> None:
        """Add a report to its round; the first one of a client counts.

        Raises:
            MalformedUpdate, RoundClosed, NotInCohort, RunNotFound: See validation.py and rounds.py.
        """
        with self._lock:
            session = self._sessions.check(client_id, token, self._monotonic())
            run = self.get_run(run_id)
            evaluation = replace(evaluation, domain=session.client.domain)
            check_evaluation(evaluation, len(config_of(run).data.classes))
            current = run.round if run.round_number == number else self._store.find_round(run_id, number)
            if current is not None and client_id in current.evaluations:
                return
            after = rounds.add_evaluation(run, number, evaluation)
            self._step(run, after, evaluation=evaluation)

    # Time and work, driven by app.py or by a simulation

    def tick(self) -> None:
        """Let time pass: leases run out, stopping runs end, gauges follow."""
        with self._lock:
            for session in self._sessions.expire(self._monotonic()):
                self._record_lost(session.client.client_id)
            self._end_stopping_runs()
            self._metrics.observe_clients(session.heartbeat.activity for session in self._sessions)
            self._metrics.observe_runs(self._runs.values())

    def work(self) -> bool:
        """Aggregate one round if one waits for it; says whether there was one. Call it from one thread at a time.

        Raises:
            StoreUnavailable: The disk or the database is away; the round still waits.
        """
        with self._lock:
            waiting = [
                run
                for run in self._runs.values()
                if run.round is not None
                and run.round.phase is RoundPhase.AGGREGATING
                and run.status in (RunStatus.RUNNING, RunStatus.PAUSED)
            ]
        if not waiting:
            return False
        run = waiting[0]
        assert run.round is not None
        try:
            model, prototypes = aggregate(run, self._table(run), self._blobs, self._limits.fold_block_elements)
        except PayloadCorrupt as error:
            log.error("aggregation_failed", run_id=run.run_id, round=run.round.number, exc_info=True)
            reason = f"round {run.round.number} cannot be aggregated: {error.detail}"
            self._change(run.run_id, lambda run: rounds.move(run, RunEvent.FAIL, reason=reason))
            return True
        with self._lock:
            before = self._runs.get(run.run_id)
            if before is None or before.status not in (RunStatus.RUNNING, RunStatus.PAUSED):
                return True  # stopped meanwhile: what was computed is not wanted
            number = run.round.number
            after = rounds.aggregated(before, number, model=model, prototypes=prototypes, now=self._now())
            self._step(before, after)
        return True

    def subscribe(self, listener: Listener) -> None:
        """Have a function called after every change."""
        with self._lock:
            self._listeners.append(listener)

    def has_ended(self, run_id: str) -> bool:
        """Whether nothing can happen to this run any more."""
        return self.get_run(run_id).status.is_final

    # One way to change a run

    def _change(self, run_id: str, change: Callable[[Run], Run]) -> Run:
        with self._lock:
            run = self.get_run(run_id)
            return self._step(run, change(run))

    def _step(
        self,
        before: Run,
        after: Run,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        extra: Sequence[Event] = (),
    ) -> Run:
        """Settle a changed run, write it with the events it amounts to, and tell those who wait."""
        now = self._now()
        states = [before, after]
        while (settled := self._settled(states[-1], now)) is not states[-1]:
            states.append(settled)
        if all(state is before for state in states) and not extra:
            return before
        final = replace(states[-1], updated_at=now)
        pairs = zip(states, [*states[1:-1], final], strict=False)
        events = [*extra, *(event for old, new in pairs for event in self._events(old, new, now))]
        with self._store.transaction() as transaction:
            for state in states[1:-1]:
                if state.round is not None and (final.round is None or state.round.number != final.round.number):
                    transaction.save_run(state)
            transaction.save_run(final)
            if update is not None:
                transaction.add_update(final.run_id, before.round_number, update)
            if evaluation is not None:
                transaction.add_evaluation(final.run_id, before.round_number, evaluation)
            if final.round is not None:
                for blob in (final.round.model, final.round.prototypes):
                    if blob is not None:
                        transaction.add_blob(blob)
            for event in events:
                transaction.add_event(event)
        self._runs[final.run_id] = final
        if final.status.is_final:
            del self._runs[final.run_id]
            self._tables.pop(final.run_id, None)
        self._observe(states)
        self._notify(tasks_changed=any(_asks_differently(before, state) for state in states))
        return final

    def _settled(self, run: Run, now: float) -> Run:
        """The run after the next thing that happens by itself, or the same run if nothing does."""
        config = config_of(run).run
        if run.status is RunStatus.PENDING:
            connected = self._sessions.connected(self._monotonic())
            if config.clients is not None and set(config.clients) <= set(connected):
                return rounds.move(run, RunEvent.ROSTER_MET)
            if config.min_clients is not None and len(connected) >= config.min_clients:
                return rounds.move(rounds.admit(run, connected), RunEvent.ROSTER_MET)
            return run
        if rounds.is_evaluated(run):
            return self._committed(run, now)
        if config.min_clients is not None and run.status is RunStatus.RUNNING and not rounds.has_open_round(run):
            admitted = rounds.admit(run, self._sessions.connected(self._monotonic()))
            if admitted.roster != run.roster:
                return admitted
        return rounds.next_step(run, cohort_size=config.cohort_size, now=now)

    def _committed(self, run: Run, now: float) -> Run:
        current = run.round
        assert current is not None
        assert current.prototypes is not None
        domains = self._store.domains(current.cohort)
        domains |= {client_id: evaluation.domain for client_id, evaluation in current.evaluations.items()}
        num_global = len(prototypes_from_bytes(self._blobs.read(current.prototypes.sha256)))
        line = results.metrics_line(current, domains=domains, num_global_prototypes=num_global)
        timings = results.timings_line(current, now=now)
        return rounds.commit_round(
            run, metrics_json=canonical_json(line), timings_json=canonical_json(timings), now=now
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
            return [replace(event, data={**event.data, "clients": entries}) for event in events]
        admission = Event(type="clients_admitted", run_id=after.run_id, data={"clients": entries}, time=now)
        return [admission, *events]

    def _observe(self, states: Sequence[Run]) -> None:
        self._metrics.observe_runs(self._runs.values())
        for before, after in itertools.pairwise(states):
            current = after.round
            if current is None or current.phase is not RoundPhase.COMMITTED or current.number == 0:
                continue
            if before.round is not None and before.round.phase is RoundPhase.EVALUATING:
                assert current.prototypes is not None
                prototypes = prototypes_from_bytes(self._blobs.read(current.prototypes.sha256))
                num_classes = len(config_of(after).data.classes)
                counts = per_class_counts(prototypes.class_ids, num_classes).tolist()
                self._metrics.round_committed(after, counts, now=self._now())

    def _notify(self, *, tasks_changed: bool) -> None:
        for listener in self._listeners:
            listener(tasks_changed)

    # Parts of the above

    def _table(self, run: Run) -> TensorTable:
        """Layout of the run's model, set by round 0."""
        if run.run_id not in self._tables:
            assert run.model is not None
            with self._blobs.open(run.model.sha256) as file:
                self._tables[run.run_id] = read_header(file)
        return self._tables[run.run_id]

    def _feature_dim(self, run: Run) -> int:
        first = self._store.find_round(run.run_id, 0)
        assert first is not None
        (update,) = first.updates.values()
        return update.payload.int_lists[FEATURE_DIM][0]

    def _is_committed(self, run: Run, number: int, update: Update) -> bool:
        """Whether this very update was committed, in the open round or an earlier one."""
        current = run.round if run.round_number == number else self._store.find_round(run.run_id, number)
        known = None if current is None else current.updates.get(update.client_id)
        return known is not None and replace(known, num_prototypes=0).same_content(update)

    def _checked(self, run: Run, number: int, update: Update, client: Client) -> Update:
        """Check an update against the run's contract; returns it with its number of prototypes."""
        paths = {blob: self._upload_path(client.client_id, blob) for blob in update.payload.blobs}
        if number == 0:
            return check_first_model(update, paths)
        config = config_of(run)
        return check_update(update, paths, client, config, self._table(run), self._feature_dim(run))

    def _upload_path(self, client_id: str, blob: BlobRef) -> Path:
        path = self._blobs.uploaded_path(client_id, blob)
        if path is None and self._has_stored(client_id, blob):
            path = self._blobs.path(blob.sha256)
        if path is None or not path.is_file() or path.stat().st_size != blob.size_bytes:
            raise BlobNotFound(f"blob {blob.role!r} was not uploaded by client {client_id}", sha256=blob.sha256)
        return path

    def _has_stored(self, client_id: str, blob: BlobRef) -> bool:
        return self._store.has_stored(client_id, blob.sha256) and self._store.find_blob(blob.sha256) == blob.size_bytes

    def _check_upload(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> None:
        with self._refusals(client_id, run_id, number), self._lock:
            self._sessions.check(client_id, token, self._monotonic())
            if blob.size_bytes > self._limits.max_blob_bytes:
                raise BlobTooLarge(
                    f"a blob has at most {self._limits.max_blob_bytes} bytes, this one {blob.size_bytes}"
                )
            run = self.get_run(run_id)
            current = run.round
            if current is None or current.number != number or client_id not in current.updates:
                rounds.check_takes_updates(run, number, client_id)

    def _end_stopping_runs(self) -> None:
        """End the stopping runs for which no connected trainer works any more."""
        for run in [run for run in self._runs.values() if run.status is RunStatus.STOPPING]:
            busy = [session for session in self._sessions if session.works_for(run.run_id)]
            if not busy:
                self._step(run, rounds.move(run, RunEvent.ALL_IDLE, reason=run.reason))

    def _client_now(self, client: Client, now: float) -> Client:
        session = self._sessions.find(client.client_id)
        if session is None or not self._sessions.is_connected(client.client_id, now):
            return client
        return replace(
            client,
            is_connected=True,
            activity=session.heartbeat.activity,
            run_id=session.heartbeat.run_id,
            round=session.heartbeat.round,
            progress=session.heartbeat.progress,
            last_seen_at=self._now() - (now - session.last_seen),
            problem=session.problem,
            readings=session.heartbeat.readings,
        )

    def _record_problem(self, session: Session, problem: ClientProblem) -> None:
        session.problem = problem
        self._metrics.client_problems.inc()
        client = replace(session.client, problem=problem, last_seen_at=self._now())
        data = {"reason": problem.reason, "detail": problem.detail, "hint": problem.hint, "is_fatal": problem.is_fatal}
        event = Event(
            type="client_problem",
            run_id=session.heartbeat.run_id if session.heartbeat.run_id in self._runs else "",
            round=session.heartbeat.round,
            client_id=client.client_id,
            data=data,
            time=self._now(),
        )
        with self._store.transaction() as transaction:
            transaction.save_client(client)
            transaction.add_event(event)
        self._notify(tasks_changed=False)

    def _record_lost(self, client_id: str) -> None:
        event = Event(type="client_lost", client_id=client_id, time=self._now())
        with self._store.transaction() as transaction:
            transaction.add_event(event)
        log.warning("client_lost", client_id=client_id)
        self._notify(tasks_changed=False)

    @contextmanager
    def _refusals(self, client_id: str, run_id: str, number: int) -> Iterator[None]:
        """Count a refused update, and name the client and the reason in the run's history, once each."""
        try:
            yield
        except FedplccError as error:
            self._metrics.update_refused(error)
            key = (run_id, number, client_id, error.metadata.get("check", error.reason))
            with self._lock:
                if run_id in self._runs and key not in self._refused and self._sessions.find(client_id) is not None:
                    self._refused.add(key)
                    data = {"reason": error.reason, "detail": error.detail, **error.metadata}
                    with self._store.transaction() as transaction:
                        event_type = "update_refused"
                        transaction.add_event(
                            Event(
                                type=event_type,
                                run_id=run_id,
                                round=number,
                                client_id=client_id,
                                data=data,
                                time=self._now(),
                            )
                        )
                    self._notify(tasks_changed=False)
            raise


def _asks_differently(before: Run, after: Run) -> bool:
    """Whether a client may have another task now. A client's own update or report needs no telling."""

    def what(run: Run) -> tuple[RunStatus, int, RoundPhase | None]:
        return run.status, run.round_number, None if run.round is None else run.round.phase

    return what(before) != what(after)
