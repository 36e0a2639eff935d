"""The real shell of a trainer, threads, connection and retries, around a numpy client's work.

What a test of the network or of recovery needs: everything that moves bytes is what a deployed trainer runs.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import Client, ClientActivity, ForgottenRun, Task, TaskKind
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.aggregator.port import AggregatorPort
from fedplcc.trainer.cancellation import ShouldStop, never
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.task.job import OnActivity, OnProblem
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.worker import Worker
from tests.support.federation.numpy_client import NumpyClient
from tests.support.identity.issued import identity_tls

END_S = 60.0


class NumpyRunner:
    """Does a client's tasks as fedplcc.trainer.task.runner.TaskRunner does, in numpy."""

    def __init__(self, client: NumpyClient) -> None:
        self.client = client
        self.measured: Mapping[str, float] = {}
        """What its heartbeats tell."""
        self.done: list[Task] = []

    def readings(self) -> dict[str, float]:
        """What it measured."""
        return dict(self.measured)

    def announce(self) -> Client:
        """The client as it is."""
        return self.client.record

    @property
    def announced(self) -> Client:
        """The client as the aggregator knows it."""
        return self.client.record

    def forget(self, forgotten: Sequence[ForgottenRun]) -> None:
        """Keep nothing: there is nothing that it keeps."""

    def perform(
        self,
        task: Task,
        aggregator: AggregatorPort,
        should_stop: ShouldStop = never,
        on_activity: OnActivity | None = None,
        on_problem: OnProblem | None = None,
    ) -> None:
        """Do a task until the aggregator has acknowledged it."""
        if task.run is None or task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return
        say: Any = on_activity or (lambda activity, progress: None)
        say(ClientActivity.DOWNLOADING, 0.0)
        data = {blob: aggregator.fetch(blob) for blob in task.payload.blobs}
        model = next((found for blob, found in data.items() if blob.role == "model"), None)
        if task.kind is TaskKind.EVALUATE:
            assert model is not None
            say(ClientActivity.EVALUATING, 0.0)
            aggregator.report_evaluation(task.run.run_id, task.round, self.client.evaluation(task, model))
        else:
            say(ClientActivity.TRAINING, 0.0)
            update, blobs = self.client.work(task, model)
            say(ClientActivity.UPLOADING, 0.0)
            is_inline = sum(map(len, blobs.values())) <= aggregator.max_inline_bytes
            for blob, content in ({} if is_inline else blobs).items():
                is_prototypes = blob in update.payload.prototype_sets
                aggregator.store(task.run.run_id, task.round, blob, content, is_prototypes=is_prototypes)
            inline = list(blobs.values()) if is_inline else []
            aggregator.commit_update(task.run.run_id, task.round, update, inline)
        self.done.append(task)


class NumpyTrainer:
    """A trainer in threads of this process; acts within its block."""

    def __init__(
        self, address: str, client: NumpyClient, *, runner: NumpyRunner | None = None, **connection: Any
    ) -> None:
        """Prepare a trainer.

        Args:
            address: Of the aggregator, or of what stands before it.
            client: For whom it acts.
            runner: Does its tasks.
            connection: Further arguments of its `AggregatorConnection`.
        """
        self.metrics = TrainerMetrics(new_registry("trainer"))
        self.runner = runner or NumpyRunner(client)
        self.connection = AggregatorConnection(address, client.client_id, client.token, self.metrics, **connection)
        self.worker = Worker(cast(TaskRunner, self.runner), self.connection, self.metrics)
        self._thread = threading.Thread(target=self.worker.run, name=f"trainer {client.client_id}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop as on a signal, and wait for it."""
        self.worker.end()
        self._thread.join(END_S)
        assert not self._thread.is_alive()

    def count(self, name: str, *labels: str) -> float:
        """The present value of one of its counters, by the attribute's name of `TrainerMetrics`."""
        metric = getattr(self.metrics, name)
        child = metric.labels(*labels) if labels else metric
        return float(child._value.get())


def main(arguments: list[str]) -> None:
    """`python -m tests.support.federation.numpy_trainer ADDRESS CLIENT ROWS [IDENTITY]`: a trainer in a process of its own,
    until SIGTERM; over TLS with the identity of a file."""
    address, client_id, rows, *identity = arguments
    is_ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_signal: is_ending.set())
    tls = identity_tls(Path(identity[0]) if identity else None)
    with NumpyTrainer(address, NumpyClient(client_id, size=int(rows)), tls=tls):
        is_ending.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
