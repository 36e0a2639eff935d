"""Connections that are dead without a word: noticed within a bound, and everybody goes on by themselves.

The bound is three times the keepalive, 90 s by default and three seconds here, and what it takes to connect again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import Task, TaskKind
from tests.chaos.fault_proxy import Direction, FaultProxy
from tests.support.federation.grpc_client import GrpcClient, RunControl
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

KEEPALIVE_S = 1.0
BOUND_S = 3 * KEEPALIVE_S + 6.0
"""Thrice the keepalive, the longest pause before a new connection, and a busy machine."""
WAIT_S = 40.0
NUMBERS = itertools.count()
MODEL_BYTES = 60_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        federation.start_aggregator("--keepalive-s", str(KEEPALIVE_S), "--heartbeat-interval-s", "30")
        yield federation


@pytest.fixture
def control(running: Federation) -> Iterator[RunControl]:
    control = RunControl(running.address, tls=running.operator_tls)
    yield control
    control.close()


@pytest.fixture
def link(running: Federation) -> Iterator[FaultProxy]:
    with FaultProxy(running.address) as link:
        yield link


@pytest.fixture
def ann() -> NumpyClient:
    """A client of this test's own."""
    return NumpyClient(f"ann-{next(NUMBERS)}", size=MODEL_BYTES // (4 * FEATURE_DIM))


def has_completed(control: RunControl, run_id: str) -> bool:
    return control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED


def forget_midway(link: FaultProxy, direction: Direction) -> threading.Thread:
    """Have the link's connections die when a part of a blob has passed in this direction."""
    begin = direction.num_bytes

    def wait_and_forget() -> None:
        eventually(lambda: direction.num_bytes > begin + MODEL_BYTES // 2, "half of a blob has passed", WAIT_S)
        link.forget()

    thread = threading.Thread(target=wait_and_forget)
    thread.start()
    return thread


@pytest.mark.parametrize("way", ["up", pytest.param("down", marks=pytest.mark.full)])
def test_a_transfer_into_a_black_hole_goes_on_over_a_new_connection(
    running: Federation,
    control: RunControl,
    link: FaultProxy,
    ann: NumpyClient,
    way: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    document = a_document(clients=(ann.client_id,), run={"rounds": 1})
    direction = link.up if way == "up" else link.down
    direction.bytes_per_s = 100_000  # so that there is a middle
    with NumpyTrainer(link.address, ann, tls=running.client_tls(ann.client_id), keepalive_s=KEEPALIVE_S) as trainer:
        eventually(lambda: trainer.count("is_connected") == 1, "the trainer is connected", WAIT_S)
        waiting = forget_midway(link, direction)
        run_id = control.create(document).run_id
        waiting.join()
        known = link.num_connections
        begin = time.monotonic()
        eventually(lambda: link.num_connections > known, "it connects again", BOUND_S)
        print(f"noticed after {time.monotonic() - begin:.1f} s")
        eventually(lambda: has_completed(control, run_id), "the run completes", WAIT_S)
        lines = control.metrics_lines(run_id)
    same = NumpyClient(ann.client_id, size=MODEL_BYTES // (4 * FEATURE_DIM))
    with LocalFederation(tmp_path_factory.mktemp("undisturbed"), [same]) as federation:
        federation.chunk_bytes = 1 << 20
        federation.join()
        run = federation.coordinator.create_run("undisturbed", document)
        federation.run_to_end(run.run_id)
        assert lines == federation.metrics_lines(run.run_id)


@pytest.mark.parametrize("way", ["both", *(pytest.param(way, marks=pytest.mark.full) for way in ("up", "down"))])
def test_a_trainer_that_waits_on_a_dead_stream_hears_of_the_next_run_within_the_bound(
    running: Federation, control: RunControl, link: FaultProxy, ann: NumpyClient, way: str
) -> None:
    with NumpyTrainer(link.address, ann, tls=running.client_tls(ann.client_id), keepalive_s=KEEPALIVE_S) as trainer:
        eventually(lambda: trainer.count("is_connected") == 1, "the trainer is connected", WAIT_S)
        if way == "both":
            link.forget()
        else:
            direction = link.up if way == "up" else link.down
            lost = direction.num_bytes
            direction.is_swallowing = True  # until its keepalive, or the aggregator's, has run into it
            eventually(lambda: trainer.count("retries", "join") > 0, f"{lost} bytes were the last", BOUND_S)
            direction.mend()
        run_id = control.create(a_document(clients=(ann.client_id,), run={"rounds": 1})).run_id
        eventually(lambda: has_completed(control, run_id), "the run completes", BOUND_S + 5)


def test_a_new_connection_of_the_same_instance_takes_over_at_once_from_one_that_is_half_open(
    running: Federation, control: RunControl, link: FaultProxy, ann: NumpyClient
) -> None:
    """The old connection is dead, and the aggregator does not know it yet: neither stream nor upload waits for that."""
    tls = running.client_tls(ann.client_id)
    old, new = GrpcClient(link.address, ann, tls=tls), GrpcClient(running.address, ann, tls=tls)
    try:
        old.join()
        run_id = control.create(a_document(clients=(ann.client_id,), run={"rounds": 1})).run_id
        stream = old.tasks()
        task = next_work(stream)
        ((blob, data),) = ann.work(task, None)[1].items()
        half = len(data) // 2
        is_forgotten = threading.Event()

        def half_and_then_nothing() -> Iterator[tuple[int, bytes]]:
            yield 0, data[:half]
            is_forgotten.wait(WAIT_S)

        upload = threading.Thread(target=lambda: failing(lambda: old.upload_parts(task, blob, half_and_then_nothing())))
        upload.start()
        eventually(lambda: new.upload_status(task, blob).offset_bytes == half, "half of it arrived", WAIT_S)
        link.forget()
        begin = time.monotonic()
        new.join()
        again = next_work(new.tasks())
        assert again == task
        new.upload(again, blob, data, chunk_bytes=1 << 16)
        assert new.upload_status(again, blob).is_complete
        assert time.monotonic() - begin < BOUND_S - KEEPALIVE_S
        new.perform(again)
        done = new.follow(lambda found: found.run is None and has_completed(control, run_id))
        assert [found.kind for found in done if found.run is not None] == [TaskKind.TRAIN, TaskKind.EVALUATE]
        is_forgotten.set()
    finally:
        old.close()
        new.close()
    upload.join(WAIT_S)


def next_work(stream: Iterator[Any]) -> Task:
    """The first work that a task stream asks for."""
    return next(task for task in map(task_from_proto, (step.task for step in stream)) if task.run is not None)


def failing(call: Callable[[], object]) -> None:
    """Make a call whose connection will die."""
    with suppress(FedplccError):
        call()


@pytest.mark.parametrize("tls", [True, False], ids=["TLS", "plain text"])
def test_what_arrives_twice_counts_once(tls: bool, tmp_path: Path) -> None:
    """Every byte that the client sends reaches the aggregator over a second connection too.

    In plain text each call is made twice by it; TLS refuses bytes that were recorded from another connection.
    """
    document, ann = a_document(clients=("ann",), run={"rounds": 1}), NumpyClient("ann")
    with ExitStack() as stack:
        federation = stack.enter_context(Federation(tmp_path, tls=tls))
        federation.start_aggregator("--heartbeat-interval-s", "30")
        link = stack.enter_context(FaultProxy(federation.address))
        link.is_doubling = True
        control = RunControl(federation.address, tls=federation.operator_tls)
        with NumpyTrainer(link.address, ann, tls=federation.client_tls("ann"), poll_hold_s=0.2):
            run_id = control.create(document).run_id
            eventually(lambda: has_completed(control, run_id), "the run completes", WAIT_S)
            history = control.stub.WatchRun(run_pb2.WatchRunRequest(run_id=run_id, page_size=1000), timeout=WAIT_S)
            types = [response.event.type for response in history]
        control.close()
    assert types.count("update_committed") == 2, "the first model and one update"
    assert types.count("evaluation_reported") == 1
    assert "update_refused" not in types
