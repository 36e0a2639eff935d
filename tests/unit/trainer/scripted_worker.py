"""A worker between an aggregator's end and a runner that do what a test says."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import (
    Client,
    ClientActivity,
    ClientProblem,
    ForgottenRun,
    Heartbeat,
    Membership,
    RunSpec,
    Task,
    TaskKind,
)
from fedplcc.trainer.aggregator.task_stream import StreamEnd
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.worker import Worker
from tests.support import present
from tests.support.federation.processes import eventually

WAIT_S = 60.0
RUN = RunSpec(run_id="run-1", config_json="{}", config_hash="")
ROUND_1 = Task(kind=TaskKind.TRAIN, run=RUN, round=1)
ROUND_2 = Task(kind=TaskKind.TRAIN, run=RUN, round=2)
IDLE = Task(kind=TaskKind.WAIT, detail="nothing to do")


class ScriptedClient:
    """An aggregator's end: tasks are pushed by the test, heartbeats are kept, and answered as `is_wanted` says."""

    address, client_id = "nowhere:1", "ann"
    poll_hold_s: float | None = None

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.pushed: queue.Queue[Task | StreamEnd | Exception] = queue.Queue()
        self.heartbeats: queue.Queue[Heartbeat] = queue.Queue()
        self.joined: list[Client] = []
        self.announced: list[Client] = []
        self.refreshed = threading.Semaphore(0)
        self.is_wanted: Callable[[Heartbeat], bool] = lambda heartbeat: True
        self.failing_heartbeats: list[Exception] = []
        self.heartbeat_interval_s = 0.02
        self.forgotten_runs: tuple[ForgottenRun, ...] = ()
        self.is_closed = False

    def join(self, client: Client) -> Membership:
        self.joined.append(client)
        return Membership(
            heartbeat_interval_s=self.heartbeat_interval_s,
            lease_s=1,
            max_chunk_bytes=1,
            max_blob_bytes=1,
            forgotten_runs=self.forgotten_runs,
        )

    def follow(self) -> Iterator[Task | StreamEnd]:
        while not self.is_closed:
            try:
                step = self.pushed.get(timeout=0.02)
            except queue.Empty:
                continue
            if isinstance(step, Exception):
                raise step
            yield step
            if isinstance(step, StreamEnd):
                return
        raise Cancelled

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        if self.is_closed:
            raise Cancelled
        if self.failing_heartbeats:
            raise self.failing_heartbeats.pop(0)
        self.heartbeats.put(heartbeat)
        return self.is_wanted(heartbeat)

    def for_task(self, should_stop: Callable[[], bool]) -> Any:
        return self

    def announce(self, client: Client) -> None:
        self.announced.append(client)

    def refresh(self) -> None:
        self.refreshed.release()
        self.pushed.put(StreamEnd.REFRESHED)

    def close(self) -> None:
        self.is_closed = True

    def await_heartbeat(self, holds: Callable[[Heartbeat], bool]) -> Heartbeat:
        while not holds(heartbeat := self.heartbeats.get(timeout=WAIT_S)):
            pass
        return heartbeat


class ScriptedRunner:
    """Does what the test says for each (round, attempt); by default a task is done at once."""

    def __init__(self) -> None:
        self.client = Client(client_id="ann", domain="d", num_examples=3, class_counts={"a": 3})
        self.measured: dict[str, float] = {}
        self.begun: queue.Queue[Task] = queue.Queue()
        self.forgotten: queue.Queue[tuple[ForgottenRun, ...]] = queue.Queue()
        self.failing_to_forget: list[Exception] = []
        self.behaviour: Callable[..., None] = lambda *arguments: None

    def readings(self) -> dict[str, float]:
        return self.measured

    def announce(self) -> Client:
        return self.client

    @property
    def announced(self) -> Client:
        return self.client

    def forget(self, forgotten: tuple[ForgottenRun, ...]) -> None:
        self.forgotten.put(forgotten)
        if self.failing_to_forget:
            raise self.failing_to_forget.pop(0)

    def perform(self, task: Task, aggregator: Any, should_stop: Any, on_activity: Any, on_problem: Any) -> None:
        self.begun.put(task)
        on_activity(ClientActivity.TRAINING, 0.5)
        self.behaviour(task, should_stop, on_problem)


class Shell:
    """A worker that runs, and both ends of it."""

    def __init__(self) -> None:
        self.registry = new_registry("trainer")
        self.client, self.runner = ScriptedClient(), ScriptedRunner()
        metrics = TrainerMetrics(self.registry)
        self.worker = Worker(self.runner, self.client, metrics, retry_failed_s=0.1)  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self.worker.run)
        self.thread.start()

    def push(self, *tasks: Task | StreamEnd) -> None:
        for task in tasks:
            self.client.pushed.put(task)

    def begun(self) -> Task:
        return self.runner.begun.get(timeout=WAIT_S)

    def await_idle(self) -> Heartbeat:
        return self.client.await_heartbeat(lambda beat: beat.activity is ClientActivity.IDLE and not beat.run_id)

    def await_problem(self) -> ClientProblem:
        problem = present(self.client.await_heartbeat(lambda beat: beat.problem is not None).problem)
        return problem

    def outcome(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("fedplcc_tasks_total", {"kind": "train", "outcome": outcome})

    def await_outcome(self, outcome: str, count: int = 1) -> None:
        eventually(lambda: self.outcome(outcome) == count, f"{count} tasks are {outcome}", WAIT_S)

    def await_pushed(self, count: int) -> None:
        def have_arrived() -> bool:
            newest = self.worker._newest
            return newest is not None and newest.number == count

        eventually(have_arrived, "what was pushed has arrived", WAIT_S)

    def await_joins(self, count: int) -> None:
        eventually(lambda: len(self.client.joined) >= count, "it joins again", WAIT_S)
