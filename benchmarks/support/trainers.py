"""Trainers that do everything but train: the trainer's own client, real tasks, updates that all differ."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from benchmarks.support.members import Served
from benchmarks.support.models import Updates
from benchmarks.support.processes import ANSWER_S
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.tensors import blob_ref, sha256_hex
from fedplcc.shared.types import (
    FEATURE_DIM,
    MODEL,
    BlobRef,
    Client,
    ClientActivity,
    Environment,
    Evaluation,
    EvaluationCounts,
    Heartbeat,
    Payload,
    Task,
    TaskKind,
    Update,
)
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.cancellation import Cancelled, never
from fedplcc.trainer.readings.metrics import TrainerMetrics

CLIENTS = ("ann", "bob", "cat", "dan", "eve")
CLASSES = ("one", "other")
NUM_EXAMPLES = 100


def create_run(control: Any, rounds: int, clients: Sequence[str]) -> str:
    """Create a run of these clients through a stub of RunService; returns its id."""
    document = {
        "run": {"name": "bench", "method": "fedavg", "rounds": rounds, "clients": list(clients)},
        "data": {"classes": list(CLASSES)},
    }
    request = run_service_pb2.CreateRunRequest(request_id=uuid.uuid4().hex, config_json=json.dumps(document))
    return str(control.CreateRun(request, timeout=ANSWER_S).run.run_id)


def a_client(client_id: str) -> Client:
    """What a client says of itself."""
    return Client(
        client_id=client_id,
        domain="benchmark",
        num_examples=NUM_EXAMPLES,
        class_counts=dict.fromkeys(CLASSES, NUM_EXAMPLES // 2),
        environment=Environment(packages={}, cpu="any", device="cpu", platform="any"),
    )


def connection_to(
    served: Served, client_id: str, instance_token: str, *, poll_hold_s: float | None = None
) -> AggregatorConnection:
    """Return a client's connection, as a trainer has it."""
    metrics = TrainerMetrics(CollectorRegistry())
    tls = served.members.tls(client_id)
    return AggregatorConnection(served.address, client_id, instance_token, metrics, tls=tls, poll_hold_s=poll_hold_s)


@contextmanager
def following(
    served: Served, client_id: str, make: Callable[[AggregatorConnection], Callable[[Task], None]]
) -> Iterator[None]:
    """Within the block, act for a client: join, give signs of life, and have each task done by what `make` returns."""
    keep_freed_memory()  # as a trainer's process does
    client = connection_to(served, client_id, uuid.uuid4().hex)
    interval_s = client.join(a_client(client_id)).heartbeat_interval_s
    perform = make(client)
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(interval_s):
            client.heartbeat(Heartbeat(client_id=client_id, activity=ClientActivity.IDLE))

    def work() -> None:
        try:
            for step in client.follow():
                if isinstance(step, Task) and step.kind not in (TaskKind.WAIT, TaskKind.STOP):
                    perform(step)
        except Cancelled:
            pass  # closed below

    threads = [threading.Thread(target=target, daemon=True) for target in (beat, work)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        threads[0].join()
        client.close()
        threads[1].join()


class Trainer:
    """Does tasks as a trainer does, all but the training."""

    def __init__(self, client: AggregatorConnection, updates: Updates) -> None:
        self._client_id, self._updates = client.client_id, updates
        self._connection = client.for_task(never)
        self._received: BlobRef | None = None

    def perform(self, task: Task) -> None:
        """Do a task to its acknowledged end."""
        assert task.run is not None
        run_id = task.run.run_id
        blob = task.payload.tensor_group(MODEL)
        if blob is not None and blob != self._received:
            data = self._connection.fetch(blob)
            assert sha256_hex(data) == blob.sha256
            self._received = blob  # a trainer keeps the model that it evaluated for the next round
        if task.kind is TaskKind.EVALUATE:
            counts = (EvaluationCounts("test", "global", (1, 1), (2, 2)),)
            self._connection.report_evaluation(
                run_id, task.round, Evaluation(client_id=self._client_id, domain="", counts=counts)
            )
            return
        data = self._updates.another()
        group = blob_ref(MODEL, data)
        is_inline = len(data) <= self._connection.max_inline_bytes
        if not is_inline:
            self._connection.store(run_id, task.round, group, data, is_prototypes=False)
        self._connection.commit_update(run_id, task.round, self._update(task, group), [data] if is_inline else ())

    def _update(self, task: Task, group: BlobRef) -> Update:
        client_id = self._client_id
        if task.kind is TaskKind.INIT:
            payload = Payload(tensor_groups=(group,), int_lists={FEATURE_DIM: (1,)})
            return Update(client_id=client_id, payload=payload, num_examples=0)
        return Update(
            client_id=client_id,
            payload=Payload(tensor_groups=(group,)),
            num_examples=NUM_EXAMPLES,
            class_counts=(NUM_EXAMPLES // 2, NUM_EXAMPLES // 2),
        )
