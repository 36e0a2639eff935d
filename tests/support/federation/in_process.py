"""A coordinator and numpy clients in one process, without sockets or threads: for tests of rounds, storage and recovery."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import (
    GLOBAL_CLUSTER,
    MODEL,
    BlobRef,
    ClientActivity,
    CommittedUpdate,
    Event,
    EventQuery,
    Heartbeat,
    Round,
    Run,
    Task,
    TaskKind,
    Update,
)
from tests.support.clock import Clock as Clock
from tests.support.federation.numpy_client import NumpyClient, a_document


class PassingClock(Clock):
    """The time of the machine."""

    def __call__(self) -> float:
        return time.time()


class LocalFederation:
    """An aggregator on a state directory; `restart` is a crash and a new start on the same directory."""

    chunk_bytes = 100
    is_inline = False
    """Whether blobs come with their commits."""
    keep: Keep | None = None

    def __init__(
        self,
        folder: Path,
        clients: Iterable[NumpyClient],
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.folder, self.limits, self.clock = folder, limits, clock or Clock()
        self.clients = {client.client_id: client for client in clients}
        self._start()

    @classmethod
    def small(cls, folder: Path) -> Self:
        """Two clients with small models."""
        folder.mkdir(exist_ok=True)
        return cls(folder, [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))])

    def _start(self) -> None:
        self.registry = new_registry("aggregator")
        self.metrics = AggregatorMetrics(self.registry)
        self.store = SqlStore.in_folder(self.folder)
        self.coordinator = Coordinator(
            self.store,
            BlobStore(self.folder),
            self.metrics,
            self.limits,
            self.keep,
            wall_clock=self.clock,
            monotonic_clock=self.clock,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def start_again(self) -> None:
        """Forget everything in memory, as a killed process does, and start again; nobody has joined then."""
        self.store.close()
        self._start()

    def restart(self) -> None:
        """As `start_again`, and all clients join."""
        self.start_again()
        self.join()

    def path_of(self, blob: BlobRef | None) -> Path:
        """Where the bytes of a blob are, if they are."""
        assert blob is not None
        return self.folder / "blobs" / blob.sha256[:2] / blob.sha256

    def whole_round(self, run_id: str, number: int) -> Round:
        """A round with all its updates, as stored."""
        found = self.store.find_round(run_id, number)
        assert found is not None
        return found

    def create(self, method: str = "fedavg", **sections: Any) -> Run:
        """A run of all clients, under a request id of its own."""
        document = a_document(method, clients=tuple(self.clients), **sections)
        return self.coordinator.create_run(f"request {len(self.coordinator.list_runs(limit=100))}", document)

    def join(self) -> None:
        for client in self.clients.values():
            self.coordinator.join(client.record, client.token)

    def task(self, client: NumpyClient) -> Task:
        return self.coordinator.task(client.client_id, client.token)

    def work(self, client: NumpyClient) -> tuple[Task, Update, dict[BlobRef, bytes]]:
        """The client's update for its present task, which is to train or to begin, not yet sent."""
        task = self.task(client)
        assert task.kind in (TaskKind.INIT, TaskKind.TRAIN)
        return task, *client.work(task, self.fetch(client, task))

    def fetch(self, client: NumpyClient, task: Task) -> bytes | None:
        """The task's model, downloaded the way a trainer does."""
        return self.fetched(client, task).get(MODEL)

    def fetched(self, client: NumpyClient, task: Task) -> dict[str, bytes]:
        """All that comes with a task, by role."""
        data = {}
        for blob in task.payload.blobs:
            _blob, _kind, path = self.coordinator.transfers.open_download(client.client_id, client.token, blob.sha256)
            data[blob.role] = path.read_bytes()
        return data

    def upload(self, client: NumpyClient, task: Task, blobs: dict[BlobRef, bytes]) -> None:
        assert task.run is not None
        for blob, data in blobs.items():
            receiver = self.coordinator.transfers.begin_upload(
                client.client_id, client.token, task.run.run_id, task.round, blob
            )
            if receiver is None:
                continue
            try:
                offset, _complete = self.coordinator.transfers.upload_status(
                    client.client_id, client.token, task.run.run_id, task.round, blob
                )
                for begin in range(offset, len(data), self.chunk_bytes):
                    receiver.write(begin, data[begin : begin + self.chunk_bytes])
                receiver.finish()
            finally:
                receiver.close()

    def perform(self, client: NumpyClient, task: Task) -> bool:
        """Do a task to its end; says whether there was anything to do."""
        if task.kind in (TaskKind.WAIT, TaskKind.STOP) or task.run is None:
            self.idle(client)
            return False
        arrays = self.fetched(client, task)
        model = arrays.pop(MODEL, None)
        arrays.pop(GLOBAL_CLUSTER, None)
        client.arrays = arrays
        if task.kind is TaskKind.EVALUATE:
            assert model is not None
            report = client.evaluation(task, model)
            self.coordinator.report_evaluation(client.client_id, client.token, task.run.run_id, task.round, report)
            return True
        update, blobs = client.work(task, model)
        self.submit(client, task, update, blobs)
        return True

    def submit(self, client: NumpyClient, task: Task, update: Update, blobs: dict[BlobRef, bytes]) -> CommittedUpdate:
        """Upload an update's blobs and commit it, or send both at once."""
        assert task.run is not None
        if not self.is_inline:
            self.upload(client, task, blobs)
        inline = tuple(blobs.values()) if self.is_inline else ()
        return self.coordinator.commit_update(
            client.client_id, client.token, task.run.run_id, task.round, update, inline
        )

    def idle(self, client: NumpyClient) -> None:
        self.heartbeat(client, activity=ClientActivity.IDLE)

    def heartbeat(self, client: NumpyClient, **fields: Any) -> bool:
        """Say something of a client; returns whether its work is still wanted."""
        return self.coordinator.heartbeat(Heartbeat(client_id=client.client_id, **fields), client.token)

    def step(self, order: Iterable[str] | None = None) -> bool:
        """Let every client do its task once, in this order, then let the aggregator work."""
        names = list(order) if order is not None else list(self.clients)
        moved = [self.perform(self.clients[name], self.task(self.clients[name])) for name in names]
        worked = False
        while self.coordinator.work():
            worked = True
        self.coordinator.tick()
        return any(moved) or worked

    def run_to_end(self, run_id: str, order: Iterable[str] | None = None) -> Run:
        names = None if order is None else list(order)
        for _ in range(1000):
            if not self.step(names):
                break
        return self.coordinator.get_run(run_id)

    def whole_run(self, *, rounds: int = 2, request_id: str = "the run", method: str = "fedplcc") -> Run:
        """A run from joining to its end; doing it again goes on with the same run."""
        self.join()
        run = self.coordinator.create_run(request_id, a_document(method, run={"rounds": rounds}))
        return self.run_to_end(run.run_id)

    def metrics_lines(self, run_id: str) -> list[str]:
        return [current.results_json for current in self.coordinator.list_rounds(run_id, after=0)]

    def events(self, run_id: str = "", *types: str) -> list[Event]:
        """The history of a run or of everything, of some types if given."""
        found = self.coordinator.list_events(EventQuery(run_id=run_id))
        return [event for event in found if not types or event.type in types]

    def happenings(self, run_id: str) -> Counter[tuple[str, int, str]]:
        """Number of events of a run by type, round and client, without those of an aggregator that took it up again."""
        events = [event for event in self.events(run_id) if event.type != "run_recovered"]
        return Counter((event.type, event.round, event.client_id) for event in events)

    def metric(self, name: str, /, **labels: str) -> float | None:
        """A value that /metrics would show."""
        return self.registry.get_sample_value(f"fedplcc_{name}", labels)
