"""Time until a killed aggregator serves again, with a round's updates on its disk.

A real aggregator collects a round of which one client's update is missing, and is killed by SIGKILL. Then it is started on
the same state directory again and again, and killed each time it serves. Two clocks run from the start of the process: until
it says that it serves (grpc.health.v1), and until a client that joins has been told its task of the open round. Beside them:
the same with nothing on the disk, which is Python and its imports.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.support.members import Served
from benchmarks.support.models import Updates
from benchmarks.support.processes import ANSWER_S, aggregator
from benchmarks.support.report import Row, Sample, cpu_seconds, finish, median, options
from benchmarks.support.trainers import Trainer, a_client, connection_to, create_run
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc
from fedplcc.shared.identity.names import Role
from fedplcc.shared.types import Task, TaskKind
from fedplcc.shared.wire.channels import open_channel
from fedplcc.trainer.aggregator.connection import AggregatorConnection

CASES = ((0, 4_900_000), (100, 4_900_000))
"""Committed updates of the open round, and the parameters of the model."""
REPEATS = 7
GOAL_S = 2.0


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the start of a process, and the processor time that it had used when it served."""

    serving: Sample
    task_s: float


def main() -> None:
    """Measure every case."""
    arguments = options(__doc__)
    cases = ((0, 10_000), (3, 10_000)) if arguments.quick else CASES
    rows = [_measured(*case, repeats=2 if arguments.quick else REPEATS, plain=arguments.plain) for case in cases]
    finish("recovery", rows, arguments)


def _measured(num_updates: int, num_parameters: int, *, repeats: int, plain: bool) -> Row:
    with tempfile.TemporaryDirectory(prefix="fedplcc-recovery-") as name:
        folder = Path(name)
        clients = [f"client-{index:03}" for index in range(num_updates + 1)]
        with aggregator(folder, plain=plain, clients=clients) as (served, pid):
            if num_updates:
                _collect(served, clients, num_parameters)
            os.kill(pid, signal.SIGKILL)
        expected = TaskKind.TRAIN if num_updates else TaskKind.WAIT
        found = [_recovered(folder, clients[-1], expected, plain=plain) for _ in range(repeats)]
        stored_bytes = sum(path.stat().st_size for path in folder.joinpath("state").rglob("*") if path.is_file())
    serving = [recovery.serving for recovery in found]
    return {
        "committed updates": num_updates,
        "parameters": num_parameters,
        "on disk (GB)": stored_bytes / 1e9,
        "serving again (s)": median(serving),
        "slowest (s)": max(sample.wall_s for sample in serving),
        "CPU (s)": median(serving, "cpu_s"),
        "a task again (s)": statistics.median(recovery.task_s for recovery in found),
        "goal": f"<= {GOAL_S:g} s",
        "reached": median(serving) <= GOAL_S,
    }


def _collect(served: Served, clients: list[str], num_parameters: int) -> None:
    """Have a run's first round collect the updates of all clients but the last one."""
    with served.open_channel() as channel:
        for client_id in clients:
            with closing(_connection(served, client_id)) as client:
                client.join(a_client(client_id))
        create_run(run_service_pb2_grpc.RunServiceStub(channel), 1, clients)
        for index, client_id in enumerate([clients[0], *clients[:-1]]):  # the first one makes the model, then trains
            with closing(_connection(served, client_id)) as client:
                client.join(a_client(client_id))
                task = _task(client)
                assert task.kind is (TaskKind.TRAIN if index else TaskKind.INIT), task.kind
                Trainer(client, Updates(num_parameters, index)).perform(task)


def _recovered(folder: Path, client_id: str, expected: TaskKind, *, plain: bool) -> Recovery:
    begin = time.perf_counter()
    with aggregator(folder, plain=plain) as (served, pid):
        tls = served.members.tls("watch", Role.MONITOR)
        with open_channel(served.address, tls=tls) as channel:
            request = health_pb2.HealthCheckRequest(service="fedplcc.v1.RoundService")
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=ANSWER_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        serving = Sample(time.perf_counter() - begin, cpu_seconds([pid]))
        with closing(_connection(served, client_id)) as client:
            client.join(a_client(client_id))
            task = _task(client)
        task_s = time.perf_counter() - begin
        assert task.kind is expected, task.kind
        os.kill(pid, signal.SIGKILL)
    return Recovery(serving, task_s)


def _connection(served: Served, client_id: str) -> AggregatorConnection:
    return connection_to(served, client_id, f"{client_id}-instance-token-0123456789")


def _task(client: AggregatorConnection) -> Task:
    """The client's task now."""
    steps = client.follow()
    task = next(steps)
    assert isinstance(task, Task)
    return task


if __name__ == "__main__":
    main()
