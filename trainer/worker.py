"""The worker of a trainer: follows tasks, does the newest one, sends heartbeats, and reconnects by itself.

It has three threads. The caller's thread does tasks, one at a time. One thread follows the task stream: the newest task
wins, and a task with another key cancels the one in progress. One thread sends heartbeats: at intervals, and soon after the
activity changes. An idle trainer is silent until half of its lease is over: results, which are calls too, renew it and say
that it is idle.

    task received ----> newest ------> perform ------> idle, until another is received
                          |               |
        another key, or "stop" in a       +--> failed: reported; not tried again for RETRY_FAILED_S unless the task changes
        heartbeat, cancels within a batch +--> refused as late: dropped

A broken connection cancels nothing: training goes on, and its result is sent when the aggregator is back.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace

from fedplcc.shared.errors import (
    CertificateRevoked,
    FedplccError,
    Internal,
    InvalidArgument,
    NotAMember,
    NotInCohort,
    RoundClosed,
    UpdateConflict,
)
from fedplcc.shared.process.failpoints import passing
from fedplcc.shared.process.log import bind, get_logger
from fedplcc.shared.reasons import IdleReason, OwnersWord
from fedplcc.shared.types import Client, ClientActivity, ClientProblem, ForgottenRun, Heartbeat, LogLevel, Task
from fedplcc.shared.wire.backoff import backoff
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.aggregator.round_service import LEAVING_S
from fedplcc.trainer.aggregator.task_stream import StreamEnd
from fedplcc.trainer.cancellation import Cancelled, pause
from fedplcc.trainer.owner.approval.gate import Gate
from fedplcc.trainer.owner.site_log import SiteLog
from fedplcc.trainer.readings.metrics import WORK, TrainerMetrics
from fedplcc.trainer.task.failures import ModelFailed, OutOfMemory, is_out_of_memory, sentence_for_others
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.job import FIRST_ACTIVITY
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.worker_state import Failure, HeartbeatTurns, Lease, Newest, Work

RETRY_FAILED_S = 30.0
"""Pause before a failed task is tried again although it has not changed: its data may have been repaired."""
VAIN_PER_S, VAIN_AT_ONCE = 1.0, 100.0
"""Tasks that are not done, reasons for none, and streams that begin, of a second and at once: each leaves lines on this
site's disk."""
JOIN_THREADS_S = 5.0
"""Longest time that the end waits for the other threads, whose calls are cancelled by then."""

OWNERS_WORDS = frozenset(OwnersWord)
"""Reasons of tasks that are not done because the owner of the site says so."""

log = get_logger("fedplcc.trainer.worker")


class Worker:
    """Acts for one client until `end` is called."""

    def __init__(
        self,
        runner: TaskRunner,
        client: AggregatorConnection,
        metrics: TrainerMetrics,
        *,
        readings: Callable[[], Mapping[str, float]] | None = None,
        gate: Gate | None = None,
        site_log: SiteLog | None = None,
        retry_failed_s: float = RETRY_FAILED_S,
    ) -> None:
        """Prepare to act.

        Args:
            readings: Readings for heartbeats, see readings/gathering.py; the runner's own if None. Quick, and never fails.
            gate: Knows what the owner of the site decides while the trainer runs; None where nobody decides anything.
            site_log: Log lines that the owner lets out; none if None.
            retry_failed_s: Pause before a failed task is tried again although it has not changed.
        """
        self._gate, self._site_log = gate, site_log or SiteLog(LogLevel.NONE)
        self._runner, self._client, self._metrics = runner, client, metrics
        self._readings = runner.readings if readings is None else readings
        self._retry_failed_s = retry_failed_s
        self._lock = threading.Lock()
        self._newest: Newest | None = None
        self._num_handled = 0
        self._work: Work | None = None
        self._failure: Failure | None = None
        self._record: Client | None = None
        self._outbox: list[Heartbeat] = []
        self._lease, self._turns = Lease(), HeartbeatTurns(lambda: self._is_ending)
        self._fatal: FedplccError | None = None
        # A simple queue: only its `put` may be called from a signal handler that interrupts any code.
        self._tasks_changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_ending = False
        self._is_connected = False
        self._is_answered = False
        self._why_idle = ""
        self._worked_for = ""
        self._hindrances: Mapping[str, str] = {}
        self._vain = TokenBuckets(VAIN_PER_S, VAIN_AT_ONCE)

    @property
    def is_well(self) -> bool:
        """Whether the client's lease holds and the last task did not fail; any thread may call it."""
        is_in = self._is_connected and self._lease.holds
        return is_in and (self._failure is None or self._failure.reason in OWNERS_WORDS)

    def end(self) -> None:
        """Ask to end within one batch; may be called from a signal handler."""
        self._is_ending = True
        self._tasks_changed.put(None)
        self._turns.ask()

    def run(self) -> None:
        """Act for the client until `end` is called.

        Raises:
            InvalidData: The data set cannot be opened.
            CertificateRevoked: The aggregator has revoked this client.
            InvalidArgument: It refuses the first Join, while a person sees to the start. Later it may be in error itself.
        """
        self._record = self._runner.announce()
        # Each runs in a copy of the log context, which a thread does not inherit.
        threads = [
            threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
            for name, work in (("follow", self._follow), ("heartbeat", self._send_heartbeats))
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._is_ending:
                task = self._next_task()
                if task is not None:
                    self._do(task)
        finally:
            self.end()
            threads[-1].join(LEAVING_S)  # it says that the client leaves, and closes the connection
            self._client.close()
            for thread in threads:
                thread.join(JOIN_THREADS_S)
        if self._fatal is not None:
            raise self._fatal

    # The caller's thread: one task after another

    def _next_task(self) -> Task | None:
        """Return the task that is due; otherwise wait for a change and return None."""
        with self._lock:
            task = self._due_task()
            failure = self._failure
        if task is not None:
            return task
        timeout = None if failure is None else max(0.0, failure.retry_at - time.monotonic())
        with suppress(queue.Empty):
            self._tasks_changed.get(timeout=timeout)
        return None

    def _due_task(self) -> Task | None:
        newest, failure = self._newest, self._failure
        if newest is None:
            return None
        if failure is not None and failure.key == newest.task.key:
            is_due = time.monotonic() >= failure.retry_at
        else:
            is_due = newest.number > self._num_handled
        return newest.task if is_due else None

    def _do(self, task: Task) -> None:
        """Do a task and record its outcome."""
        if task.kind not in WORK or task.run is None:
            self._say_idle(task)
            self._handled(task, None)
            if task.run is not None:  # to stop
                self._ended_untold()
            return
        self._why_idle, self._worked_for = "", task.run.run_id
        work = Work(task, FIRST_ACTIVITY[task.kind])
        with self._lock:
            if self._newest is not None and self._newest.task.key != task.key:
                return  # a newer one has come
            self._work = work
        kind = task.kind.value
        with bind(run_id=task.run.run_id, round=task.round, client_id=self._client.client_id):
            begin = time.monotonic()
            outcome, failure = self._attempt(work)
            self._handled(task, failure)
            self._metrics.tasks.labels(kind, outcome).inc()
            seconds = time.monotonic() - begin
            log.info("task_ended", task=kind, outcome=outcome, duration_s=round(seconds, 3))
            work.trace(seconds, self._client.client_id, outcome)
        with self._lock:
            self._work = None
        if outcome == "done":
            self._lease.renew(self._lease.num_untold)
            return
        self._ended_untold()
        if outcome == "cancelled":
            self._refresh(task)
        pause(self._vain.take("task"), lambda: self._is_ending)

    def _ended_untold(self) -> None:
        """Have a heartbeat tell the aggregator that work has ended: a run that stops waits for that."""
        self._lease.num_untold += 1
        self._turns.ask()

    def _say_idle(self, task: Task) -> None:
        """Log why there is nothing to do: quietly between the tasks of a run that goes on, which is so in every round."""
        is_at_work = task.idle_reasons.get(self._worked_for) == IdleReason.IN_ROUND
        hindrances = {run_id: why for run_id, why in task.idle_reasons.items() if why != IdleReason.IN_ROUND}
        is_between = is_at_work and hindrances == self._hindrances
        is_known = is_between or task.detail == self._why_idle or self._vain.take("idle") > 0
        level = logging.DEBUG if is_known else logging.INFO
        log.log(level, "idle", asked=task.kind.value, detail=task.detail)
        self._why_idle, self._hindrances = task.detail, hindrances

    def _attempt(self, work: Work) -> tuple[str, Failure | None]:
        """Do a task; returns its outcome, and the failure if it failed."""
        try:
            self._perform(work)
        except Cancelled:
            return "cancelled", None
        except (RoundClosed, NotInCohort, UpdateConflict) as error:
            log.warning("result_dropped", reason=error.reason, detail=error.detail)
            return "cancelled", None
        except FedplccError as error:
            if isinstance(error, (OutOfMemory, ModelFailed)):
                log.warning("task_crashed", exc_info=error)
            return "failed", self._report(work, error.reason, error.detail, sentence_for_others(error))
        except (Exception, SystemExit) as error:
            # A bug, or foreign code: it must not end the trainer, and its text may hold data.
            log.exception("task_crashed")
            if is_out_of_memory(error):
                return "failed", self._report(work, OutOfMemory.reason, "there is not enough memory for this task")
            return "failed", self._report(work, "INTERNAL", f"the task failed with {type(error).__name__}")
        return "done", None

    def _perform(self, work: Work) -> None:
        task, run = work.task, work.task.run
        assert run is not None

        def should_stop() -> bool:
            has_ended = self._gate is not None and self._gate.has_ended(run)
            return self._is_ending or work.is_cancelled or has_ended

        def on_activity(activity: ClientActivity, progress: float) -> None:
            is_new = activity is not work.activity
            work.progress = progress
            if is_new:
                work.change(activity)
                self._turns.ask()

        def on_problem(problem: ClientProblem) -> None:
            self._send(work, problem)

        log.info("task_begun", task=task.kind.value)
        self._turns.ask()
        connection = self._client.for_task(should_stop)
        with self._metrics.task(task.kind), passing("fedplcc.trainer.task", task.kind.value):
            try:
                self._runner.perform(task, connection, should_stop, on_activity, on_problem)
            finally:
                self._record = self._runner.announced

    def _handled(self, task: Task, failure: Failure | None) -> None:
        """Record that the task as received up to now is done."""
        with self._lock:
            self._failure = failure
            if self._newest is not None and self._newest.task.key == task.key:
                self._num_handled = self._newest.number

    def _refresh(self, task: Task) -> None:
        """Ask the aggregator for the present task, after it cancelled a task and sent no other."""
        with self._lock:
            is_newest = self._newest is not None and self._newest.task.key == task.key
        if is_newest and not self._is_ending:
            self._client.refresh()

    def _report(self, work: Work, reason: str, detail: str, public_detail: str | None = None) -> Failure:
        """Report to the aggregator that a task cannot be done; log it unless it was logged before.

        Every attempt is reported: the aggregator may have restarted, and a repeated problem changes nothing there.

        Args:
            reason: Reason in UPPER_SNAKE_CASE.
            public_detail: The sentence for the aggregator, if it differs.
        """
        last, key, hint = self._failure, work.task.key, HINTS.get(reason, "see this trainer's log")
        if last is None or (last.key, last.reason) != (key, reason):
            level = logging.WARNING if reason in OWNERS_WORDS else logging.ERROR
            log.log(level, "task_failed", task=work.task.kind.value, reason=reason, detail=detail, hint=hint)
        self._send(work, ClientProblem(reason=reason, detail=public_detail or detail, hint=hint, is_fatal=True))
        return Failure(key, reason, time.monotonic() + self._retry_failed_s)

    def _send(self, work: Work, problem: ClientProblem) -> None:
        heartbeat = replace(self._heartbeat_of(work), problem=problem)
        with self._lock:
            # A report replaces an equal one that still waits: reports do not pile up while the aggregator is away.
            self._outbox = [waiting for waiting in self._outbox if waiting.problem != problem] + [heartbeat]
        self._turns.ask()

    # The thread that follows the task stream

    def _follow(self) -> None:
        waits = backoff(self._client.rng)
        trouble: str | None = None
        while not self._is_ending:
            assert self._record is not None
            try:
                membership = self._client.join(self._record)
                self._lease.granted(membership)
                self._forget(membership.forgotten_runs)
                if self._gate is not None:
                    self._gate.forget(but_of=membership.open_runs)
                end: StreamEnd | None = None
                for step in self._client.follow():
                    if isinstance(step, StreamEnd):
                        end = step
                        continue
                    trouble, waits = None, backoff(self._client.rng)
                    self._connected(True)
                    self._push(step)
                if end is StreamEnd.REFRESHED:
                    continue
                trouble = self._disconnected(
                    trouble, end.value if end else "stream_ended", "the aggregator ended the stream"
                )
            except Cancelled:
                return
            except FedplccError as error:
                is_first = self._lease.interval_s is None
                if isinstance(error, CertificateRevoked) or (is_first and isinstance(error, InvalidArgument)):
                    self._fatal = error
                    self.end()
                    return
                trouble = self._disconnected(trouble, error.reason, error.detail)
            except Exception as error:  # an answer that no check foresaw: without this thread nothing would be followed
                trouble = self._disconnected(trouble, Internal.reason, type(error).__name__, error)
            self._metrics.retries.labels("join").inc()
            # A heartbeat answered from now on shows that the aggregator is back, even if it knows no such client.
            self._is_answered = False
            pause(next(waits), lambda: self._is_ending or self._is_answered)

    def _forget(self, forgotten: Sequence[ForgottenRun]) -> None:
        """Delete what is kept of runs that are to forget the client, whatever task is in progress."""
        try:
            self._runner.forget(forgotten)
        except FedplccError as error:
            # The next change of what is kept, or the next answer to Join, deletes it.
            log.warning("forgetting_waits", reason=error.reason, detail=error.detail)

    def _disconnected(self, trouble: str | None, reason: str, detail: str, crash: Exception | None = None) -> str:
        """Log once that the connection is lost; returns the reason."""
        self._connected(False)
        if reason != trouble and not self._is_ending:
            self._log_trouble(reason, detail, crash)
        return reason

    def _log_trouble(self, reason: str, detail: str, crash: Exception | None) -> None:
        level = logging.DEBUG if self._vain.wait_s("join") else logging.WARNING
        log.log(level, "disconnected", reason=reason, detail=f"{detail}; trying again until it works", exc_info=crash)

    def _connected(self, is_connected: bool) -> None:
        if is_connected and not self._is_connected:
            level = logging.DEBUG if self._vain.take("join") else logging.INFO
            log.log(level, "connected", aggregator=self._client.address)
        self._is_connected = is_connected
        self._metrics.is_connected.set(is_connected)

    def _push(self, task: Task) -> None:
        with self._lock:
            number = 1 if self._newest is None else self._newest.number + 1
            self._newest = Newest(task, number)
            if self._work is not None and self._work.task.key != task.key:
                self._work.is_cancelled = True
        if self._tasks_changed.empty():  # else a stream of tasks would fill memory while one is done
            self._tasks_changed.put(None)

    # The thread of heartbeats

    def _send_heartbeats(self) -> None:
        while not self._is_ending:
            begin = time.monotonic()
            if self._lease.interval_s is not None:
                try:
                    if not self._may_be_silent():
                        self._send_all()
                    self._follow_owner()
                except Cancelled:
                    return
                except NotAMember:
                    self._is_answered = True
                    self._client.refresh()
                except FedplccError:
                    pass  # logged already, and the next one is due soon
                except Exception as error:
                    self._log_trouble(Internal.reason, type(error).__name__, error)
                    self._vain.take("join")
            self._turns.wait(begin, self._lease.interval_s or 1.0, lambda: self._work is not None and not self._outbox)
        self._say_leaving()
        # The caller's thread may wait for an answer; this ends its call.
        self._client.close()

    def _say_leaving(self) -> None:
        """Tell the aggregator that this end is meant, so that nobody looks for a lost client."""
        if self._is_connected and self._fatal is None:
            with suppress(FedplccError, Cancelled):
                leaving = Heartbeat(client_id=self._client.client_id, is_leaving=True)
                self._site_log.send(leaving, self._client.heartbeat)

    def _follow_owner(self) -> None:
        """Act on what the owner of the site has decided, and tell the aggregator."""
        if self._gate is None:
            return
        work = self._work
        found = self._gate.look(None if work is None else work.task.run)
        with self._lock:
            if found.is_ended and work is not None:
                work.is_cancelled = True
            if found.reports and self._failure is not None and self._failure.reason in OWNERS_WORDS:
                self._failure.retry_at = 0.0
                self._tasks_changed.put(None)
        for decision, problem in found.reports:
            report = Heartbeat(client_id=self._client.client_id, run_id=decision.run_id, problem=problem)
            self._client.heartbeat(report)
            self._gate.told(decision)

    def _may_be_silent(self) -> bool:
        is_idle = self._work is None and not self._outbox and not self._site_log.has_lines
        return is_idle and self._is_connected and self._lease.may_wait()

    def _send_all(self) -> None:
        """Send waiting reports, then a heartbeat."""
        while True:
            num_untold = self._lease.num_untold
            with self._lock:
                work = self._work
                report = self._outbox[0] if self._outbox else None
                heartbeat = report or self._heartbeat_of(work)
            if report is None:
                is_wanted = self._site_log.send(heartbeat, self._client.heartbeat)
            else:
                is_wanted = self._client.heartbeat(heartbeat)
            self._lease.renew(num_untold if report is None and work is None else -1)
            self._is_answered = True
            if report is None:
                break
            with self._lock:
                self._outbox = [waiting for waiting in self._outbox if waiting is not report]
        with self._lock:
            if not is_wanted and work is not None and work is self._work:
                work.is_cancelled = True

    def _heartbeat_of(self, work: Work | None) -> Heartbeat:
        readings = self._readings()
        client_id = self._client.client_id
        if work is None or work.task.run is None:
            return Heartbeat(client_id=client_id, readings=readings)
        return Heartbeat(
            client_id=client_id,
            activity=work.activity,
            run_id=work.task.run.run_id,
            round=work.task.round,
            progress=work.progress,
            readings=readings,
        )
