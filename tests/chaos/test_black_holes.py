"""Connections that are dead without a word: noticed within a bound, and everybody goes on by themselves.

The bound is three times the keepalive, 90 s by default and three seconds here, and what it takes to connect again.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.chaos.fault_proxy import Direction, FaultProxy
from tests.support.federation.grpc_client import RunControl
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


def test_a_trainer_that_waits_on_a_dead_stream_hears_of_the_next_run_within_the_bound(
    running: Federation, control: RunControl, link: FaultProxy, ann: NumpyClient
) -> None:
    with NumpyTrainer(link.address, ann, tls=running.client_tls(ann.client_id), keepalive_s=KEEPALIVE_S) as trainer:
        eventually(lambda: trainer.count("is_connected") == 1, "the trainer is connected", WAIT_S)
        link.forget()
        run_id = control.create(a_document(clients=(ann.client_id,), run={"rounds": 1})).run_id
        eventually(lambda: has_completed(control, run_id), "the run completes", BOUND_S + 5)


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
