"""The long-lived shell of a trainer: follows tasks, does the newest, gives signs of life, and comes back by itself.

Three threads. The caller's does tasks, one at a time. One follows the task stream: the newest task wins, and a task of
another key cancels the one at hand. One sends heartbeats: on time, and at once when the activity changes.

    task pushed ------> newest ------> perform ------> idle, until another is pushed
                          |               |
        another key, or "stop" in a       +--> failed: reported; not tried again for RETRY_FAILED_S unless the task changes
        heartbeat, cancels within a batch +--> refused as late: dropped

A connection that breaks cancels nothing: training goes on, and its result is handed in when the aggregator is back.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace

from shared.errors import (
    FedplccError,
    InvalidArgument,
    NotAMember,
    NotInCohort,
    RoundClosed,
    Unauthenticated,
    UpdateConflict,
)
from shared.process.failpoints import passing
from shared.process.log import bind, get_logger
from shared.types import Client, ClientActivity, ClientProblem, Heartbeat, Task, TaskKind
from shared.wire.backoff import backoff
from trainer.aggregator.connection import AggregatorClient, StreamEnd, pause
from trainer.aggregator.proxy_detection import Cuts
from trainer.cancellation import Cancelled
from trainer.readings.metrics import WORK, TrainerMetrics
from trainer.task.failures import ModelFailed, OutOfMemory, is_out_of_memory, sentence_for_others
from trainer.task.runner import TaskRunner

RETRY_FAILED_S = 30.0
"""Pause before a task that failed is tried again although it has not changed: somebody may have mended the data."""
JOIN_THREADS_S = 5.0
"""How long the end waits for the other threads, whose calls are cancelled by then."""

HINTS: Mapping[str, str] = {
    "INVALID_DATA": "check this trainer's --data against the run's classes and image size",
    "INVALID_MODEL": "this trainer needs the same model code as the rest of the federation",
    "CODE_NOT_ALLOWED": "the owner of this site allows the code with --allow-code, or the run names another model",
    "FILE_NOT_ALLOWED": "the owner of this site allows the file with --allow-file, or the run names no checkpoint",
    "DOWNLOAD_NOT_ALLOWED": "the owner of this site allows it with --allow-download; or begin with a model that somebody "
    "else made: initial_model",
    "INVALID_CONFIG": "aggregator and trainer may be of different versions",
    "MALFORMED_UPDATE": "the aggregator refused this client's update; compare versions and data",
    "UPDATE_NORM_EXCEEDED": "check this client's data; or lower the run's learning rate or raise the limit that "
    "[admission] sets",
    "BLOB_CORRUPT": "check the network path and the aggregator's disk",
    "TRAINING_DIVERGED": 'stop the run, and start one so changed from an earlier model: initial_model = "run:ID@ROUND"',
    "TOO_MANY_PROTOTYPES": 'set partition = "last" or a larger min_cluster_size in the run\'s [method] section',
    "UNFIT_INITIAL_MODEL": "stop the run, and start one whose initial_model, [model] and data.classes agree",
    "DISK_FULL": "make room on the disk of this trainer's --state-dir; the finished update waits in memory and is sent then",
    "STORE_UNAVAILABLE": "see that this trainer can read and write its --state-dir; the finished update waits in memory",
    "MODEL_FAILED": "mend the model's code and restart this trainer, whose log has the whole error; or stop the run",
    "OUT_OF_MEMORY": "use a smaller training.batch_size or evaluation_batch_size, or another device",
}
"""What to do about a problem, by reason."""

FIRST_ACTIVITY: Mapping[TaskKind, ClientActivity] = {
    TaskKind.INIT: ClientActivity.INITIALISING,
    TaskKind.TRAIN: ClientActivity.DOWNLOADING,
    TaskKind.EVALUATE: ClientActivity.DOWNLOADING,
}
"""What a task begins with; the data are read under the same name."""

log = get_logger("trainer.worker")


@dataclass(slots=True, eq=False)
class _Work:
    """A task in progress."""

    task: Task
    activity: ClientActivity
    progress: float = 0.0
    is_cancelled: bool = False


@dataclass(slots=True)
class _Failure:
    """The last task that could not be done."""

    key: tuple[str, int, TaskKind]
    reason: str
    retry_at: float


@dataclass(slots=True)
class _Newest:
    """The newest task, and how many have been pushed with it."""

    task: Task
    number: int


class Worker:
    """Acts for one client until it is told to end."""

    def __init__(
        self,
        runner: TaskRunner,
        client: AggregatorClient,
        metrics: TrainerMetrics,
        *,
        readings: Callable[[], Mapping[str, float]] | None = None,
        retry_failed_s: float = RETRY_FAILED_S,
    ) -> None:
        """Prepare to act.

        Args:
            runner: Does the tasks.
            client: The connection to the aggregator.
            metrics: Where to count.
            readings: What the heartbeats carry, see readings/gathering.py; the runner's own if None. Quick, and never fails.
            retry_failed_s: Pause before a task that failed is tried again although it has not changed.
        """
        self._runner, self._client, self._metrics = runner, client, metrics
        self._readings = runner.readings if readings is None else readings
        self._retry_failed_s = retry_failed_s
        self._lock = threading.Lock()
        self._newest: _Newest | None = None
        self._num_handled = 0
        self._work: _Work | None = None
        self._failure: _Failure | None = None
        self._record: Client | None = None
        self._outbox: list[Heartbeat] = []
        self._heartbeat_interval_s: float | None = None
        self._lease_s, self._heard_at = 0.0, 0.0
        self._fatal: FedplccError | None = None
        # Simple queues, because only their `put` may be called from a signal handler that interrupts any of our own code.
        self._tasks_changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._beat_now: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_ending = False
        self._is_connected = False
        self._is_answered = False
        self._why_idle = ""
        self._worked_for = ""
        self._hindrances = list[str]()

    @property
    def is_well(self) -> bool:
        """Whether the aggregator counts on this trainer and the last task did not fail; any thread may ask."""
        is_in = self._is_connected and time.monotonic() < self._heard_at + self._lease_s
        return is_in and self._failure is None

    def end(self) -> None:
        """Ask to end within one batch; may be called from a signal handler."""
        self._is_ending = True
        self._tasks_changed.put(None)
        self._beat_now.put(None)

    def run(self) -> None:
        """Act for the client until `end` is called.

        Raises:
            InvalidData: The data set cannot be opened.
            InvalidArgument, Unauthenticated: The aggregator refuses this client for good.
        """
        self._record = self._runner.announce()
        # Each in a copy of what is bound here, which a thread does not inherit.
        threads = [
            threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
            for name, work in (("follow", self._follow), ("heartbeat", self._beat))
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
            self._client.close()
            for thread in threads:
                thread.join(JOIN_THREADS_S)
        if self._fatal is not None:
            raise self._fatal

    # The caller's thread: one task after another

    def _next_task(self) -> Task | None:
        """Wait for something to do; None when it is worth looking again."""
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
        """Do a task, whatever comes of it."""
        if task.kind not in WORK or task.run is None:
            self._say_idle(task)
            self._handled(task, None)
            return
        self._why_idle, self._worked_for = "", task.run.run_id
        work = _Work(task, FIRST_ACTIVITY[task.kind])
        with self._lock:
            if self._newest is not None and self._newest.task.key != task.key:
                return  # a newer one came since
            self._work = work
        kind = task.kind.value
        with bind(run_id=task.run.run_id, round=task.round, client_id=self._client.client_id):
            begin = time.monotonic()
            outcome, failure = self._attempt(work)
            self._handled(task, failure)
            self._metrics.tasks.labels(kind, outcome).inc()
            log.info("task_ended", task=kind, outcome=outcome, duration_s=round(time.monotonic() - begin, 3))
        with self._lock:
            self._work = None
        self._beat_now.put(None)
        if outcome == "cancelled":
            self._ask_again(task)

    def _say_idle(self, task: Task) -> None:
        """Log why there is nothing to do: quietly between the tasks of a run that goes on, which is so in every round."""
        # One sentence a run. Only the level hangs on them: of an aggregator that words them otherwise there are lines more.
        reasons = task.detail.split("; ")
        is_at_work = any(why.startswith(f"run {self._worked_for}: round ") for why in reasons)
        hindrances = [why for why in reasons if ": round " not in why]
        is_between = is_at_work and hindrances == self._hindrances
        level = logging.DEBUG if is_between or task.detail == self._why_idle else logging.INFO
        log.log(level, "idle", asked=task.kind.value, detail=task.detail)
        self._why_idle, self._hindrances = task.detail, hindrances

    def _attempt(self, work: _Work) -> tuple[str, _Failure | None]:
        """Do a task; says how it ended, and what failed if something did."""
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
            # A bug, or somebody's code: it must not take the trainer along, and its text may hold data.
            log.exception("task_crashed")
            if is_out_of_memory(error):
                return "failed", self._report(work, OutOfMemory.reason, "there is not enough memory for this task")
            return "failed", self._report(work, "INTERNAL", f"the task failed with {type(error).__name__}")
        return "done", None

    def _perform(self, work: _Work) -> None:
        task, run = work.task, work.task.run
        assert run is not None

        def should_stop() -> bool:
            return self._is_ending or work.is_cancelled

        def on_activity(activity: ClientActivity, progress: float) -> None:
            is_new = activity is not work.activity
            work.activity, work.progress = activity, progress
            if is_new:
                self._beat_now.put(None)

        def on_problem(problem: ClientProblem) -> None:
            self._send(work, problem)

        log.info("task_begun", task=task.kind.value)
        self._beat_now.put(None)
        connection = self._client.for_task(should_stop)
        with self._metrics.task(task.kind):
            client = self._runner.client_for(run, on_problem)
            if self._record is None or client.num_examples != self._record.num_examples:
                # Files were unreadable, or the run splits them in another way than was announced.
                connection.announce(client)
                self._record = client
            with passing("trainer.task", task.kind.value):
                self._runner.perform(task, connection, should_stop, on_activity, on_problem)

    def _handled(self, task: Task, failure: _Failure | None) -> None:
        """Remember that what was pushed up to now for this task is dealt with."""
        with self._lock:
            self._failure = failure
            if self._newest is not None and self._newest.task.key == task.key:
                self._num_handled = self._newest.number

    def _ask_again(self, task: Task) -> None:
        """Have the aggregator say what it wants now, where it wanted no more of a task and has not pushed another."""
        with self._lock:
            is_newest = self._newest is not None and self._newest.task.key == task.key
        if is_newest and not self._is_ending:
            self._client.refresh()

    def _report(self, work: _Work, reason: str, detail: str, told: str | None = None) -> _Failure:
        """Tell the aggregator that a task cannot be done, and the log unless it knows.

        The aggregator is told at every attempt: it may have restarted since, and the same problem again changes nothing.

        Args:
            work: The task.
            reason: Why, in UPPER_SNAKE_CASE.
            detail: The sentence for the log.
            told: The sentence for the aggregator, where that is another.
        """
        last, key, hint = self._failure, work.task.key, HINTS.get(reason, "see this trainer's log")
        if last is None or (last.key, last.reason) != (key, reason):
            log.error("task_failed", task=work.task.kind.value, reason=reason, detail=detail, hint=hint)
        self._send(work, ClientProblem(reason=reason, detail=told or detail, hint=hint, is_fatal=True))
        return _Failure(key, reason, time.monotonic() + self._retry_failed_s)

    def _send(self, work: _Work, problem: ClientProblem) -> None:
        heartbeat = replace(self._heartbeat_of(work), problem=problem)
        with self._lock:
            # What could not be sent yet and says the same is replaced, so that a long absence gathers nothing.
            self._outbox = [waiting for waiting in self._outbox if waiting.problem != problem] + [heartbeat]
        self._beat_now.put(None)

    # The thread that follows the task stream

    def _follow(self) -> None:
        waits, cuts = backoff(self._client.rng), Cuts()
        trouble: str | None = None
        while not self._is_ending:
            assert self._record is not None
            try:
                membership = self._client.join(self._record)
                self._heartbeat_interval_s, self._lease_s = membership.heartbeat_interval_s, membership.lease_s
                self._warn_of_cuts(cuts.joined())
                end: StreamEnd | None = None
                for step in self._client.follow():
                    if isinstance(step, StreamEnd):
                        end = step
                        continue
                    cuts.spoke(time.monotonic())
                    trouble, waits = None, backoff(self._client.rng)
                    self._heard_at = time.monotonic()
                    self._connected(True)
                    self._push(step)
                if end is StreamEnd.REFRESHED:
                    continue
                if end is None:
                    cuts.broke(time.monotonic())
                else:
                    cuts.ended()
                trouble = self._say(trouble, end.value if end else "stream_ended", "the aggregator ended the stream")
            except Cancelled:
                return
            except (InvalidArgument, Unauthenticated) as error:
                self._fatal = error
                self.end()
                return
            except FedplccError as error:
                cuts.broke(time.monotonic())
                trouble = self._say(trouble, error.reason, error.detail)
            self._metrics.retries.labels("join").inc()
            # A heartbeat that is answered from now on, if only by who does not know us, says that the aggregator is back.
            self._is_answered = False
            pause(next(waits), lambda: self._is_ending or self._is_answered)

    def _say(self, trouble: str | None, reason: str, detail: str) -> str:
        """Say once that the aggregator does not answer as it should; returns the reason."""
        self._connected(False)
        if reason != trouble and not self._is_ending:
            log.warning("disconnected", reason=reason, detail=f"{detail}; trying again until it works")
        return reason

    def _warn_of_cuts(self, idle_s: float | None) -> None:
        """Say what helps where something on the way cuts what is idle for so long."""
        if idle_s is None:
            return
        hold_s = self._client.poll_hold_s
        hint = "use --sync poll" if hold_s is None else f"use a --poll-hold-s below {min(idle_s, hold_s):.1f}"
        detail = f"something between here and the aggregator cuts calls that are idle for {idle_s:.1f} s"
        log.warning("idle_calls_are_cut", idle_s=round(idle_s, 1), detail=detail, hint=hint)

    def _connected(self, is_connected: bool) -> None:
        if is_connected and not self._is_connected:
            log.info("connected", aggregator=self._client.address)
        self._is_connected = is_connected
        self._metrics.is_connected.set(is_connected)

    def _push(self, task: Task) -> None:
        with self._lock:
            number = 1 if self._newest is None else self._newest.number + 1
            self._newest = _Newest(task, number)
            if self._work is not None and self._work.task.key != task.key:
                self._work.is_cancelled = True
        self._tasks_changed.put(None)

    # The thread of heartbeats

    def _beat(self) -> None:
        while not self._is_ending:
            begin = time.monotonic()
            if self._heartbeat_interval_s is not None:
                try:
                    self._beat_once()
                except Cancelled:
                    return
                except NotAMember:
                    self._is_answered = True
                    self._client.refresh()
                except FedplccError:
                    pass  # the log knows, and the next one is due soon
            self._wait_for_beat(begin)
        # The caller's thread may be waiting for an answer; this ends its call.
        self._client.close()

    def _beat_once(self) -> None:
        """Send what waits to be reported, then how things stand."""
        while True:
            with self._lock:
                work = self._work
                report = self._outbox[0] if self._outbox else None
                heartbeat = report or self._heartbeat_of(work)
            is_wanted = self._client.heartbeat(heartbeat)
            self._heard_at, self._is_answered = time.monotonic(), True
            if report is None:
                break
            with self._lock:
                self._outbox = [waiting for waiting in self._outbox if waiting is not report]
        with self._lock:
            if not is_wanted and work is not None and work is self._work:
                work.is_cancelled = True

    def _heartbeat_of(self, work: _Work | None) -> Heartbeat:
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

    def _wait_for_beat(self, last: float) -> None:
        """Wait until a heartbeat is due or asked for; several wishes are one.

        The interval runs from when the last one began: on a slow link its answer takes longer than the interval.
        """
        due = last + (self._heartbeat_interval_s or 1.0)
        with suppress(queue.Empty):
            self._beat_now.get(timeout=max(0.0, due - time.monotonic()))
            while True:
                self._beat_now.get_nowait()
