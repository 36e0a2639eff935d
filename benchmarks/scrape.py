"""Cost of a scrape by Prometheus to a real aggregator with 100 connected clients and four open runs.

The clients, one process, have done a round of every run: so ten domains, ten classes and all loss terms have their series,
and every client tells all readings with its heartbeats, which go on. The scraper asks as Prometheus does: one connection,
gzip, OpenMetrics preferred. Processor time is that of the aggregator's process; what it takes without being scraped, in
windows that alternate with the others, is subtracted.
"""

from __future__ import annotations

import gzip
import http.client
import json
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.members import Served
from benchmarks.support.models import model_bytes
from benchmarks.support.processes import ANSWER_S, aggregator, peer
from benchmarks.support.report import Row, cpu_seconds, finish, options
from benchmarks.support.trainers import connection_to
from fedplcc.aggregator.app import ENDPOINT_FILE
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc
from fedplcc.shared.readings import READINGS
from fedplcc.shared.tensors import blob_ref, prototypes_to_bytes
from fedplcc.shared.types import (
    FEATURE_DIM,
    LOCAL_CLUSTER,
    MODEL,
    Client,
    ClientActivity,
    Environment,
    Evaluation,
    EvaluationCounts,
    Heartbeat,
    Payload,
    PrototypeSet,
    Task,
    TaskKind,
    Update,
)
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.cancellation import never

NUM_CLIENTS, NUM_RUNS, NUM_DOMAINS = 100, 4, 10
CLASSES = tuple(f"class-{index}" for index in range(10))
NUM_EXAMPLES, FEATURES, NUM_PARAMETERS = 100, 16, 1_000
INTERVAL_S = 5.0
"""How often Prometheus scrapes; `deploy/prometheus` says 5 s too."""
HEARTBEAT_S, LEASE_HEARTBEATS = 2.0, 60
"""A busy machine takes long until all clients are there; none may be lost meanwhile."""
GOAL = 0.01
"""Share of a processor that scraping may take."""
ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""What Prometheus 2.42 accepts."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Size of the measurement."""

    clients: int
    windows: int
    """Windows of each kind, in turn."""
    scrapes: int
    """Scrapes in a window of many, one right after the other."""
    window_s: float
    """Length of a window in which there is a scrape every `INTERVAL_S`, and of one without."""


FULL, QUICK = Effort(NUM_CLIENTS, 4, 40, 20.0), Effort(4, 1, 3, 0.2)


def main() -> None:
    """Measure with clients that have series of their own, and without."""
    arguments = options(__doc__)
    effort = QUICK if arguments.quick else FULL
    rows = [
        _measured(effort, has_clients=has_clients, plain=arguments.plain)
        for has_clients in ((True,) if arguments.quick else (True, False))
    ]
    finish("scrape", rows, arguments)


def _measured(effort: Effort, *, has_clients: bool, plain: bool) -> Row:
    heartbeats = ("--heartbeat-interval-s", str(HEARTBEAT_S), "--lease-heartbeats", str(LEASE_HEARTBEATS))
    flags = (*heartbeats, *(() if has_clients else ("--client-metrics", "0")))
    names = [f"client-{index:03}" for index in range(effort.clients)]
    with tempfile.TemporaryDirectory(prefix="fedplcc-scrape-") as name, ExitStack() as stack:
        folder = Path(name)
        served, pid = stack.enter_context(aggregator(folder, *flags, plain=plain, clients=names))
        rosters = [names[first::NUM_RUNS] for first in range(NUM_RUNS)]
        clients = stack.enter_context(peer(act, served, rosters))
        clients.receive()
        with served.open_channel() as channel:
            control = run_service_pb2_grpc.RunServiceStub(channel)
            for roster in rosters:
                clients.control.send(_create(control, roster))
                clients.receive()
        port = int(json.loads((folder / "state" / ENDPOINT_FILE).read_text())["metrics_port"])
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)) as prometheus:
            text = scraped(prometheus)
            many, every, without = _windows(effort, pid, lambda: scraped(prometheus))
        idle = statistics.median(window.share for window in without)
        scrape_cpu = statistics.median((window.cpu_s - idle * window.wall_s) / window.scrapes for window in many)
        return {
            "clients": effort.clients,
            "series of clients": has_clients,
            "series": sum(not line.startswith("#") for line in text.splitlines()),
            "text (KiB)": len(text) / 1024,
            "scrape (ms)": 1000 * statistics.median(window.wall_s / window.scrapes for window in many),
            "CPU of a scrape (ms)": 1000 * scrape_cpu,
            f"of a core at {INTERVAL_S:g} s (%)": 100 * scrape_cpu / INTERVAL_S,
            "core, not scraped (%)": 100 * idle,
            "core, scraped (%)": 100 * statistics.median(window.share for window in every),
            "goal": f"<= {100 * GOAL:g} %",
        }


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which an aggregator was scraped so many times."""

    wall_s: float
    cpu_s: float
    scrapes: int

    @property
    def share(self) -> float:
        """Processor time for each second."""
        return self.cpu_s / self.wall_s


def _windows(effort: Effort, pid: int, scrape: Callable[[], object]) -> tuple[list[Window], list[Window], list[Window]]:
    """Windows of scrapes one right after the other, of scrapes at Prometheus' interval, and of none; they take turns."""
    many, every, without = [], [], []
    for _ in range(effort.windows):
        many.append(_window(pid, scrape, effort.scrapes, rest_s=0.0, least_s=0.0))
        without.append(_window(pid, scrape, 0, rest_s=0.0, least_s=effort.window_s))
        scrapes = max(1, round(effort.window_s / INTERVAL_S))
        every.append(_window(pid, scrape, scrapes, rest_s=effort.window_s / scrapes, least_s=effort.window_s))
    return many, every, without


def _window(pid: int, scrape: Callable[[], object], scrapes: int, *, rest_s: float, least_s: float) -> Window:
    begin, before = time.monotonic(), cpu_seconds([pid])
    for index in range(scrapes):
        time.sleep(max(0.0, begin + index * rest_s - time.monotonic()))
        scrape()
    time.sleep(max(0.0, begin + least_s - time.monotonic()))
    return Window(time.monotonic() - begin, cpu_seconds([pid]) - before, scrapes)


def scraped(prometheus: http.client.HTTPConnection) -> str:
    """The answer of /metrics to a request as Prometheus makes it."""
    prometheus.request("GET", "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
    answer = prometheus.getresponse()
    body = answer.read()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"/metrics answered {answer.status}")
    return gzip.decompress(body).decode() if answer.headers["Content-Encoding"] == "gzip" else body.decode()


def _create(control: Any, roster: Sequence[str]) -> str:
    document = {
        "run": {"name": "bench", "method": "fedplcc", "rounds": 3, "clients": list(roster)},
        "data": {"classes": list(CLASSES)},
    }
    request = run_service_pb2.CreateRunRequest(request_id=uuid.uuid4().hex, config_json=json.dumps(document))
    return str(control.CreateRun(request, timeout=ANSWER_S).run.run_id)


def act(control: Connection, served: Served, rosters: Sequence[Sequence[str]]) -> None:
    """The process of all clients: for each run that it is told they do a round, and they give signs of life."""
    with ExitStack() as stack:
        clients = {name: stack.enter_context(_joined(served, name)) for roster in rosters for name in roster}
        is_over = threading.Event()
        beating = threading.Thread(target=_beat, args=(list(clients.values()), is_over))
        beating.start()
        try:
            control.send("joined")
            for roster in rosters:
                control.recv()
                for names in (roster[:1], roster, roster):
                    for name in names:
                        _perform(clients[name])
                control.send("done")
            control.poll(ANSWER_S)  # until the benchmark lets go
        finally:
            is_over.set()
            beating.join()


@contextmanager
def _joined(served: Served, name: str) -> Iterator[AggregatorConnection]:
    client = connection_to(served, name, uuid.uuid4().hex, poll_hold_s=0.05)
    with closing(client):
        client.join(
            Client(
                client_id=name,
                domain=f"domain-{int(name.rpartition('-')[2]) // NUM_RUNS % NUM_DOMAINS}",
                num_examples=NUM_EXAMPLES,
                class_counts=dict.fromkeys(CLASSES, NUM_EXAMPLES // len(CLASSES)),
                environment=Environment(packages={}, cpu="any", device="cpu", platform="any"),
            )
        )
        yield client


def _beat(clients: Sequence[AggregatorConnection], is_over: threading.Event) -> None:
    """Let every client say all that a trainer says of itself, one after the other."""
    readings = {name: 0.123456789 for name in READINGS}
    while True:
        for client in clients:
            if is_over.wait(HEARTBEAT_S / len(clients)):
                return
            client.heartbeat(Heartbeat(client_id=client.client_id, activity=ClientActivity.TRAINING, readings=readings))


def _perform(client: AggregatorConnection) -> None:
    """Do the client's task, all but the training."""
    with closing(client.follow()) as steps:  # type: ignore[type-var]  # a generator, which its type does not say
        task = next(
            step for step in steps if isinstance(step, Task) and step.kind not in (TaskKind.WAIT, TaskKind.STOP)
        )
    assert task.run is not None
    run_id, connection = task.run.run_id, client.for_task(never)
    if task.kind is TaskKind.EVALUATE:
        counts = (EvaluationCounts("test", "global", (7,) * len(CLASSES), (10,) * len(CLASSES)),)
        report = Evaluation(client_id=client.client_id, domain="", counts=counts)
        connection.report_evaluation(run_id, task.round, report)
        return
    seed = int(client.client_id.rpartition("-")[2])
    data = model_bytes(NUM_PARAMETERS, seed)
    group = blob_ref(MODEL, data)
    connection.store(run_id, task.round, group, data, is_prototypes=False)
    update = Update(client_id=client.client_id, payload=Payload(tensor_groups=(group,)), num_examples=0)
    if task.kind is TaskKind.INIT:
        update = replace(update, payload=replace(update.payload, int_lists={FEATURE_DIM: (FEATURES,)}))
    else:
        vectors = prototypes_to_bytes(_prototypes(seed))
        prototypes = blob_ref(LOCAL_CLUSTER, vectors)
        connection.store(run_id, task.round, prototypes, vectors, is_prototypes=True)
        update = replace(
            update,
            payload=replace(update.payload, prototype_sets=(prototypes,)),
            num_examples=NUM_EXAMPLES,
            class_counts=(NUM_EXAMPLES // len(CLASSES),) * len(CLASSES),
            losses={"total": 1.0, "ce": 0.5, "contra": 0.25, "corr": 0.25},
        )
    connection.commit_update(run_id, task.round, update)


def _prototypes(seed: int) -> PrototypeSet:
    ids = np.arange(len(CLASSES))
    vectors = np.random.default_rng(seed).standard_normal((len(CLASSES), FEATURES))
    return PrototypeSet.of(vectors, ids, np.full(len(CLASSES), NUM_EXAMPLES / len(CLASSES)))


if __name__ == "__main__":
    main()
