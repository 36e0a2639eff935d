"""The anonymous memory of a real aggregator through whole rounds: by the number of updates, and within a limit on it.

One process acts for all clients, one after the other, with the trainer's own client; the rounds are as long as they must be.
Memory is that of the aggregator's process at its peak, libraries and all. A limit is set on a running aggregator (Linux's
RLIMIT_DATA) before it gets a model that is three times larger.
"""

from __future__ import annotations

import json
import resource
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.members import Served
from benchmarks.support.models import Updates
from benchmarks.support.peak import PeakMemory
from benchmarks.support.processes import ANSWER_S, aggregator, peer
from benchmarks.support.report import Row, finish, options
from benchmarks.support.trainers import CLASSES, NUM_EXAMPLES, a_client, connection_to
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc
from fedplcc.shared.tensors import blob_ref, prototypes_to_bytes
from fedplcc.shared.types import (
    FEATURE_DIM,
    LOCAL_CLUSTER,
    MODEL,
    BlobRef,
    Evaluation,
    EvaluationCounts,
    Payload,
    PrototypeSet,
    Task,
    TaskKind,
    Update,
)
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.cancellation import never

COUNTS = (2, 10, 100, 1000)
"""Clients, each with one update a round."""
NUM_PARAMETERS = 500_000
ROUNDS = 1
PER_CLASS, FEATURES = 5, 64
"""Prototypes of each client and class, and their size: a thousand clients' are 10,000 rows of 64 numbers."""
HEADROOM_MIB = 96
"""What the limit leaves above what an idle aggregator has asked for: stacks of threads that come, the heaps of threads."""
STACK_BYTES = 1 << 20
"""For each of its threads, as after `ulimit -s 1024`; with 8 MiB they alone would be most of the limit."""
LEASE = ("--heartbeat-interval-s", "600")
"""One process acts for all clients in turn, so none may be given up meanwhile."""


def main() -> None:
    """Measure every case."""
    arguments = options(__doc__)
    cases = [(method, num_clients) for method in ("fedavg", "fedplcc") for num_clients in COUNTS]
    num_parameters = 10_000 if arguments.quick else NUM_PARAMETERS
    rows = [
        _by_updates(*case, num_parameters, arguments.plain) for case in ([("fedplcc", 2)] if arguments.quick else cases)
    ]
    limited = _within_a_limit(0.01 if arguments.quick else 3.0, arguments.plain)
    finish("memory", rows, arguments, within_a_limit=limited)
    print(f"a model {limited['times larger']} times larger than the limit of {limited['limit (MiB)']} MiB: ", end="")
    print("the same bytes as without one" if limited["same bytes"] else "OTHER BYTES than without one")


def _by_updates(method: str, num_clients: int, num_parameters: int, plain: bool) -> Row:
    with tempfile.TemporaryDirectory(prefix="fedplcc-memory-") as name:
        folder, clients = Path(name), _clients(num_clients)
        with aggregator(folder, *LEASE, plain=plain, clients=clients) as (served, pid), PeakMemory(pid) as memory:
            _rounds(served, method, num_clients, num_parameters)
        return {
            "method": method,
            "updates": num_clients,
            "parameters": num_parameters,
            "peak (MiB)": memory.peak_mib,
            "above idle (MiB)": memory.extra_mib,
        }


def _within_a_limit(factor: float, plain: bool) -> dict[str, Any]:
    made = []
    for is_limited in (True, False):
        with (
            tempfile.TemporaryDirectory(prefix="fedplcc-memory-") as name,
            _small_stacks(),
            aggregator(Path(name), *LEASE, plain=plain) as (served, pid),
        ):
            if is_limited:
                limit = _data_bytes(pid) + (HEADROOM_MIB << 20)
                resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
                num_parameters = int(factor * limit) // 4
            made.append(_rounds(served, "fedavg", 2, num_parameters))
    return {
        "limit (MiB)": limit >> 20,
        "model (MiB)": 4 * num_parameters >> 20,
        "times larger": factor,
        "same bytes": made[0] == made[1],
    }


@contextmanager
def _small_stacks() -> Iterator[None]:
    """Let processes that start within the block have small stacks for their threads."""
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


def _clients(num: int) -> list[str]:
    return [f"client-{index:04}" for index in range(num)]


def _rounds(served: Served, method: str, num_clients: int, num_parameters: int) -> str:
    """Train a run of so many clients to its end; returns the last model's SHA-256."""
    names = _clients(num_clients)
    with peer(act, served, names, num_parameters) as clients:
        clients.receive()
        with served.open_channel() as channel:
            control = run_service_pb2_grpc.RunServiceStub(channel)
            run_id = _create(control, method, names)
            clients.control.send(None)
            while clients.receive() != "done":
                pass
            watch = control.WatchRun(run_service_pb2.WatchRunRequest(run_id=run_id, follow=True), timeout=ANSWER_S)
            types = [answer.event.type for answer in watch]
            if types[-1] != "run_completed":
                raise RuntimeError(f"the run met {types[-1]}")
            listing = control.ListRounds(run_service_pb2.ListRoundsRequest(run_id=run_id), timeout=ANSWER_S)
            return str(json.loads(listing.rounds[-1].metrics_json)["model_sha256"])


def _create(control: Any, method: str, names: list[str]) -> str:
    document = {
        "run": {"name": "bench", "method": method, "rounds": ROUNDS, "clients": names},
        "data": {"classes": list(CLASSES)},
    }
    request = run_service_pb2.CreateRunRequest(request_id=uuid.uuid4().hex, config_json=json.dumps(document))
    return str(control.CreateRun(request, timeout=ANSWER_S).run.run_id)


def act(control: Connection, served: Served, names: list[str], num_parameters: int) -> None:
    """The process of all clients: they join, and then do their tasks one after the other, a message for each."""
    tokens = {name: uuid.uuid4().hex for name in names}
    updates = Updates(num_parameters, 0)

    @contextmanager
    def connected(name: str) -> Any:
        client = connection_to(served, name, tokens[name], poll_hold_s=0.05)
        with closing(client):
            client.join(a_client(name))
            yield client

    for name in names:
        with connected(name):
            pass
    control.send(None)
    control.recv()
    for turn in [names[:1], *(names for _ in range(2 * ROUNDS))]:
        for name in turn:
            with connected(name) as client:
                _perform(client, _next_task(client), updates.another)
            control.send(name)
    control.send("done")
    control.poll(ANSWER_S)  # until the benchmark lets go


def _next_task(client: AggregatorConnection) -> Task:
    steps = client.follow()
    try:
        return next(
            step for step in steps if isinstance(step, Task) and step.kind not in (TaskKind.WAIT, TaskKind.STOP)
        )
    finally:
        steps.close()  # type: ignore[attr-defined]


def _perform(client: AggregatorConnection, task: Task, make: Callable[[], bytes]) -> None:
    assert task.run is not None
    run_id, connection = task.run.run_id, client.for_task(never)
    if task.kind is TaskKind.EVALUATE:
        counts = (EvaluationCounts("test", "global", (1, 1), (2, 2)),)
        connection.report_evaluation(
            run_id, task.round, Evaluation(client_id=client.client_id, domain="", counts=counts)
        )
        return
    data = make()
    blobs = {blob_ref(MODEL, data): data}
    groups, sets = tuple(blobs), list[BlobRef]()
    if task.kind is TaskKind.TRAIN and json.loads(task.run.config_json)["run"]["method"] == "fedplcc":
        vectors = prototypes_to_bytes(_prototypes(data))
        sets.append(blob_ref(LOCAL_CLUSTER, vectors))
        blobs[sets[0]] = vectors
    for blob, content in blobs.items():
        connection.store(run_id, task.round, blob, content, is_prototypes=blob.role == LOCAL_CLUSTER)
    payload = Payload(tensor_groups=groups, prototype_sets=tuple(sets))
    if task.kind is TaskKind.INIT:
        first = Payload(tensor_groups=groups, int_lists={FEATURE_DIM: (FEATURES,)})
        update = Update(client_id=client.client_id, payload=first, num_examples=0)
    else:
        counts_of = (NUM_EXAMPLES // 2,) * len(CLASSES)
        update = Update(client_id=client.client_id, payload=payload, num_examples=NUM_EXAMPLES, class_counts=counts_of)
    connection.commit_update(run_id, task.round, update)


def _prototypes(data: bytes) -> PrototypeSet:
    """Some for each class, other ones for each update."""
    rng = np.random.default_rng(list(data[-4096::16]))
    num_rows = PER_CLASS * len(CLASSES)
    ids = np.repeat(np.arange(len(CLASSES)), PER_CLASS)
    weights = np.full(num_rows, NUM_EXAMPLES / 2 / PER_CLASS)
    return PrototypeSet.of(rng.standard_normal((num_rows, FEATURES)), ids, weights)


def _data_bytes(pid: int) -> int:
    """Memory that a process has asked for, as RLIMIT_DATA counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has ended")


if __name__ == "__main__":
    main()
