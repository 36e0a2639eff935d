"""Downloads and uploads of one blob beside raw gRPC streams of the same chunks, by one client and by five at once.

The raw streams move bare bytes, either hashed on both sides, in files and fsynced, as this project's are, or out of memory
and into nothing. An upload is timed until it is complete and durable, before it is part of any update.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.bare import BareClient, serve
from benchmarks.support.members import Members, Served
from benchmarks.support.models import Updates, model_bytes
from benchmarks.support.processes import STATE, Peer, aggregator, peer
from benchmarks.support.report import Row, Sample, alternate, cpu_seconds, finish, median, options, ratio
from benchmarks.support.trainers import CLIENTS, Trainer, create_run, following
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc
from fedplcc.shared.tensors import blob_ref, sha256_hex
from fedplcc.shared.types import MODEL, Task, TaskKind
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.cancellation import never

SIZES = {"20 MB": 5_000_000, "100 MB": 25_000_000}
DIRECTIONS = ("download", "upload")
KINDS = ("fedplcc", "kept", "moved")


def main() -> None:
    """Measure every size."""
    arguments = options(__doc__)
    sizes = {"0.4 MB": 100_000} if arguments.quick else SIZES
    rows: list[Row] = []
    clients = CLIENTS[:2] if arguments.quick else CLIENTS
    for name, num_parameters in sizes.items():
        repeats = 1 if arguments.quick else 9 if num_parameters < 1e7 else 5
        rows += measure(name, num_parameters, repeats, clients, plain=arguments.plain)
    finish("transfer", rows, arguments)


def measure(
    name: str, num_parameters: int, repeats: int, names: Sequence[str] = CLIENTS, *, plain: bool = False
) -> list[Row]:
    """One size: seconds of either direction, one and five at once."""
    model = model_bytes(num_parameters)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedplcc-transfer-")))
        (folder / "bare").mkdir()
        members = Members.of(folder / STATE, plain=plain)
        keeping = stack.enter_context(peer(serve, folder / "bare", model, members))
        moving = stack.enter_context(peer(serve, folder / "bare", model, members, False))
        ports = (keeping.receive(), moving.receive())
        served, pid = stack.enter_context(aggregator(folder, plain=plain))
        clients = [
            stack.enter_context(peer(transfer, index, num_parameters, served, *ports)) for index in range(len(names))
        ]
        for client in clients:
            client.receive()
        control = run_service_pb2_grpc.RunServiceStub(stack.enter_context(served.open_channel()))
        create_run(control, 1, names)
        for client in clients:
            client.receive()  # it has the task that names the model
        servers = dict(zip(KINDS, (pid, keeping.pid, moving.pid), strict=True))
        rows: list[Row] = []
        for direction in DIRECTIONS:
            for some in (clients[:1], clients):
                cases = {kind: partial(_at_once, some, servers[kind], kind, direction) for kind in KINDS}
                for case in cases.values():  # the first time of anything is slower
                    case()
                rows.append(_row(name, direction, len(some), alternate(cases, repeats)))
    return rows


def transfer(control: Connection, index: int, num_parameters: int, served: Served, kept: int, moved: int) -> None:
    """A client's process: moves one blob each time it is told to, and says when it has."""
    updates = Updates(num_parameters, index)
    members = served.members
    bare = {"kept": BareClient(kept, members), "moved": BareClient(moved, members, hashes=False)}
    holding = Holding(updates)
    with following(served, CLIENTS[index], holding.follow):
        control.send(None)
        holding.has_task.wait()
        control.send(None)
        try:
            while True:
                kind, direction = control.recv()
                side: Any = holding if kind == "fedplcc" else bare[kind]
                data = updates.another() if direction == "upload" else b""
                control.send(None)
                control.recv()
                if direction == "upload":
                    side.upload(CLIENTS[index], data)
                else:
                    side.download()
                control.send(None)
        except EOFError:
            pass
    for each in bare.values():
        each.close()


class Holding:
    """A trainer that makes the run's first model and then keeps its first training task open."""

    def __init__(self, updates: Updates) -> None:
        self.has_task = threading.Event()
        self._updates = updates

    def follow(self, client: AggregatorConnection) -> Any:
        """What does the client's tasks."""
        self._connection = client.for_task(never)
        trainer = Trainer(client, self._updates)

        def perform(task: Task) -> None:
            if task.kind is TaskKind.TRAIN:
                self._task = task
                self.has_task.set()
            else:
                trainer.perform(task)

        return perform

    def download(self) -> None:
        """Fetch the task's model, and look whether it is that."""
        blob = self._task.payload.tensor_group(MODEL)
        assert blob is not None
        assert sha256_hex(self._connection.fetch(blob)) == blob.sha256

    def upload(self, _client: str, data: bytes) -> None:
        """Name a model by its hash and store it."""
        assert self._task.run is not None
        run_id, blob = self._task.run.run_id, blob_ref(MODEL, data)
        self._connection.store(run_id, self._task.round, blob, data, is_prototypes=False)


def _at_once(clients: list[Peer], server: int, kind: str, direction: str) -> Sample:
    for client in clients:
        client.control.send((kind, direction))
    for client in clients:
        client.receive()  # it is ready
    pids = [server, *(client.pid for client in clients)]
    cpu, wall = cpu_seconds(pids), time.perf_counter()
    for client in clients:
        client.control.send(None)
    for client in clients:
        client.receive()
    wall = time.perf_counter() - wall
    return Sample(wall, cpu_seconds(pids) - cpu)


def _row(name: str, direction: str, num_clients: int, samples: dict[str, list[Sample]]) -> Row:
    return {
        "blob": name,
        "direction": direction,
        "clients": num_clients,
        "fedplcc (s)": median(samples["fedplcc"]),
        "raw, kept (s)": median(samples["kept"]),
        "raw, moved (s)": median(samples["moved"]),
        "ratio to kept": ratio(samples["fedplcc"], samples["kept"]),
        "ratio to moved": ratio(samples["fedplcc"], samples["moved"]),
        "CPU ratio to kept": ratio(samples["fedplcc"], samples["kept"], "cpu_s"),
    }


if __name__ == "__main__":
    main()
