"""One hostile member beside an honest run: what it sends, and what the honest run and an operator see of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import PauseRun, QuarantineClient, ResumeRun, StopRun
from fedplcc.shared.tensors import sha256_hex, to_bytes
from fedplcc.shared.types import LOCAL_CLUSTER, MODEL, BlobRef, PrototypeSet, Task, TaskKind, Update
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.network import undisturbed
from tests.support.federation.grpc_client import GrpcClient, RunControl
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

HONEST = ("ann", "bob")
MALLORY = "mallory"
SIZE = 20_000
"""Rows of the honest models: 480 kB each."""
PATIENCE_S = 600.0
STEER_S = 2.0
"""Longest time of an operator's request, where times are judged."""


@dataclass
class Outcome:
    """An attack's effect on the honest run, and on an operator's requests."""

    attack: str
    undisturbed_s: float
    seconds: float
    is_same: bool
    steered_s: dict[str, float] = field(default_factory=dict)

    def violations(self, *, is_timed: bool) -> list[str]:
        """Sentences for what does not hold; times count only on a machine that does nothing else."""
        found = [] if self.is_same else [f"{self.attack}: the honest run ended in other bytes"]
        if is_timed and self.seconds > 2 * self.undisturbed_s + 1:
            found.append(
                f"{self.attack}: the honest run took {self.seconds:.1f} s, {self.undisturbed_s:.1f} s by itself"
            )
        slow = {action: seconds for action, seconds in self.steered_s.items() if is_timed and seconds > STEER_S}
        return found + [f"{self.attack}: {action} took {seconds:.1f} s" for action, seconds in slow.items()]


class CostlyClient(NumpyClient):
    """A member of a run of its own whose prototypes are almost equal, so that FINCH* must compare each pair exactly."""

    rows, dim = 1024, 64

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        """Twins of random directions that are 1e-12 apart in cosine: the edge at which FINCH* calls two of them equal."""
        rng = np.random.default_rng(task.round)
        away_ND = rng.standard_normal((self.rows // 2, self.dim))
        away_ND[:, 0] = 0
        away_ND *= 1e-6 / np.linalg.norm(away_ND, axis=1, keepdims=True)
        rows_ND = np.concatenate([away_ND, away_ND])
        rows_ND[:, 0] = 1
        return PrototypeSet.of(rows_ND, [0] * len(rows_ND), [1] * len(rows_ND))

    def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[Any, bytes]]:
        """As every client, with a feature size of its own."""
        update, blobs = super().work(task, model)
        if task.kind is TaskKind.INIT:
            update.payload.int_lists["feature_dim"] = (self.dim,)  # type: ignore[index]  # a dict, built just now
        return update, blobs


class Attack:
    """A hostile member of a run of its own, within its block; what it does in threads ends with the block."""

    def __init__(self, address: str, control: RunControl, client: NumpyClient, tls: ClientTls | None) -> None:
        """Prepare; `tls` is that of the client's certificate, which is what a hostile member has."""
        self.address, self.control, self.client, self._tls = address, control, client, tls
        self.run_id = ""
        self._around = ExitStack()
        self._threads: list[threading.Thread] = []
        self.is_over = threading.Event()

    def __enter__(self) -> Attack:
        self.grpc = GrpcClient(self.address, self.client, tls=self._tls)
        self._around.callback(self.grpc.close)
        self.grpc.join()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.is_over.set()
        self._around.close()
        for thread in self._threads:
            thread.join()

    def begin_run(self, method: str = "fedplcc") -> Task:
        """Make a run of its own and its first model; returns the first task to train."""
        document = a_document(method, (self.client.client_id,), run={"name": "hostile", "rounds": 1000})
        self.run_id = self.control.create(document).run_id
        return self.next_training()

    def next_training(self) -> Task:
        """Do what is asked until the next task to train."""
        for response in self.grpc.tasks():
            task = task_from_proto(response.task)
            if task.kind is TaskKind.TRAIN:
                return task
            if task.kind in (TaskKind.INIT, TaskKind.EVALUATE):
                self.grpc.perform(task)
        raise AssertionError("the stream of tasks ended")

    def enter(self, held: AbstractContextManager[object]) -> None:
        """Hold something until the attack is over."""
        self._around.enter_context(held)

    def again_and_again(self, act: Callable[[], object]) -> None:
        """Do something in a thread until the attack is over, whatever the answer."""

        def repeat() -> None:
            while not self.is_over.is_set():
                with suppress(FedplccError, grpc.RpcError, OSError, ValueError):
                    act()

        self._threads.append(threading.Thread(target=repeat, daemon=True))
        self._threads[-1].start()

    def stalls_uploads(self, task: Task, count: int = 16) -> None:
        """Begin uploads that never go on, each of the size of a model."""
        size_bytes = len(to_bytes(self.client.first_model()))
        for index in range(count):
            blob = BlobRef(MODEL, sha256_hex(b"%d" % index), size_bytes)

            def parts(blob: Any = blob) -> Iterator[Any]:
                yield round_pb2.UploadModelRequest(header=self.grpc.header(task, blob))
                self.is_over.wait()

            self.again_and_again(lambda parts=parts: self.grpc.stub.UploadModel(parts(), timeout=PATIENCE_S))  # type: ignore[misc]


def honest_clients() -> list[NumpyClient]:
    """The honest clients."""
    return [NumpyClient(name, size=SIZE) for name in HONEST]


def honest_document(rounds: int) -> dict[str, Any]:
    """Configuration of the honest run."""
    return a_document("fedplcc", HONEST, run={"name": "honest", "rounds": rounds})


@contextmanager
def honest_trainers(federation: Federation) -> Iterator[None]:
    """The honest clients' trainers."""
    with ExitStack() as around:
        for client in honest_clients():
            tls = federation.client_tls(client.client_id)
            around.enter_context(NumpyTrainer(federation.address, client, tls=tls))
        yield


def honest_run(control: RunControl, rounds: int) -> tuple[float, list[str]]:
    """Carry out the honest run; returns its seconds and its lines of metrics, which name its bytes."""
    begin = time.monotonic()
    run_id = control.create(honest_document(rounds)).run_id

    def has_completed() -> bool:
        status = control.get(run_id).status
        assert status in (types_pb2.RUN_STATUS_PENDING, types_pb2.RUN_STATUS_RUNNING, types_pb2.RUN_STATUS_COMPLETED)
        return status == types_pb2.RUN_STATUS_COMPLETED

    eventually(has_completed, "the honest run completes", PATIENCE_S)
    return time.monotonic() - begin, control.metrics_lines(run_id)


def expected_lines(folder: Path, rounds: int) -> list[str]:
    """Lines of metrics of the honest run that nothing happened to."""
    return undisturbed(folder / "undisturbed", honest_clients(), honest_document(rounds))


def steer(control: RunControl, run_id: str, client_id: str = MALLORY) -> dict[str, float]:
    """Pause, resume, quarantine and stop as an operator does; returns the seconds of each."""
    took = {}
    requests: dict[str, Callable[[], object]] = {
        "pause": lambda: control.steer(run_id, PauseRun(now=True)),
        "resume": lambda: control.steer(run_id, ResumeRun()),
        "quarantine": lambda: control.steer(run_id, QuarantineClient(client_id)),
        "stop": lambda: control.steer(run_id, StopRun()),
    }
    for action, ask in requests.items():
        begin = time.monotonic()
        ask()
        took[action] = time.monotonic() - begin
    status = control.get(run_id).status
    assert status in (types_pb2.RUN_STATUS_STOPPING, types_pb2.RUN_STATUS_STOPPED), status
    return took
