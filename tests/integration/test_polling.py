"""Trainers behind proxies: what cuts idle connections or calls, or holds answers back, does no harm to those who poll."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.convert.tasks import poll_to_proto, task_from_proto
from fedplcc.shared.errors import IdentityMismatch, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import Poll, TaskKey, TaskKind
from fedplcc.shared.wire.statuses import translated
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import DEADLINE_S, GrpcClient, RunControl
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.thread_trainer import ThreadTrainer
from tests.support.hosts.proxies import CallProxy

IDLE_S = 0.8
"""What the proxies here cut."""
HOLD_S, LONG_HOLD_S = 0.25, 20.0
NUMBERS = itertools.count()
CLIENT = tiny_federation.CLIENTS[0]
WAIT: TaskKey = ("", 0, TaskKind.WAIT, 0)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One aggregator for the tests of this module whose trainers are in this process."""
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        # No second heartbeat during a test: it would keep the one connection of a trainer from being idle.
        federation.start_aggregator("--heartbeat-interval-s", "30")
        yield federation


@pytest.fixture
def control(running: Federation) -> Iterator[RunControl]:
    control = RunControl(running.address, tls=running.operator_tls)
    yield control
    control.close()


@pytest.fixture
def ann(running: Federation) -> Iterator[GrpcClient]:
    """A client of this test's own, so that no other test's run asks it for anything."""
    name = f"ann-{next(NUMBERS)}"
    client = GrpcClient(running.address, NumpyClient(name), tls=running.client_tls(name))
    client.join()
    yield client
    client.close()


def started(federation: Federation) -> Federation:
    federation.start_aggregator("--heartbeat-interval-s", "30")
    return federation


def alone(folder: Path) -> dict[str, Any]:
    """The tiny federation with one client and one round."""
    tiny_federation.write_data(folder)
    document = tiny_federation.document(folder, run={"rounds": 1, "clients": [CLIENT]})
    return {**document, "clients": {CLIENT: document["clients"][CLIENT]}}


def last_line(control: RunControl, run_id: str) -> dict[str, Any]:
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", 60)
    last: dict[str, Any] = json.loads(control.metrics_lines(run_id)[-1])
    return last


def polled(client: GrpcClient, known: TaskKey | None, hold_s: float) -> tuple[list[TaskKey], str, float]:
    """The tasks and the end that a poll is answered with, and after how many seconds."""
    request = round_pb2.SyncRoundRequest(
        client_id=client.client_id, instance_token=client.token, poll=poll_to_proto(Poll(known, hold_s))
    )
    begin = time.monotonic()
    with translated():
        *steps, end = client.stub.SyncRound(request, timeout=DEADLINE_S)
    keys = [task_from_proto(step.task).key for step in steps]
    return keys, round_pb2.StreamEnd.Reason.Name(end.end.reason), time.monotonic() - begin


def test_a_poll_is_answered_at_once_with_another_task_and_else_when_its_time_is_over(
    ann: GrpcClient, control: RunControl
) -> None:
    assert polled(ann, None, LONG_HOLD_S)[:2] == ([WAIT], "REASON_POLL_ANSWERED")
    keys, end, seconds = polled(ann, WAIT, 0.3)
    assert (keys, end) == ([], "REASON_POLL_ANSWERED")
    assert seconds >= 0.3
    assert polled(ann, WAIT, 0.0)[:2] == ([], "REASON_POLL_ANSWERED")
    creating = threading.Timer(0.2, lambda: control.create(a_document(clients=(ann.client_id,))))
    creating.start()
    (key,), _end, _seconds = polled(ann, WAIT, LONG_HOLD_S)
    creating.join()
    assert key[1:] == (0, TaskKind.INIT, 0)
    assert polled(ann, key, 0.0)[0] == []
    assert polled(ann, None, LONG_HOLD_S)[0] == [key]


def test_a_poll_ends_like_a_stream_where_another_follows(ann: GrpcClient) -> None:
    ends: list[str] = []
    older = threading.Thread(target=lambda: ends.append(polled(ann, WAIT, LONG_HOLD_S)[1]))
    older.start()

    def is_superseded() -> bool:
        polled(ann, WAIT, 0.0)
        return not older.is_alive()

    eventually(is_superseded, "the newer poll ends the older")
    assert ends == ["REASON_SUPERSEDED"]


def test_impossible_polls_are_refused_by_their_field(ann: GrpcClient) -> None:
    for known, hold_s, field in ((None, -1.0, "hold"), (("r", -1, TaskKind.TRAIN, 0), 1.0, "round")):
        with pytest.raises(MalformedRequest) as refused:
            polled(ann, known, hold_s)
        assert refused.value.metadata["field"] == field
    ann.client.client_id = "eve"
    with pytest.raises(IdentityMismatch):
        polled(ann, None, 0.0)


def test_a_trainer_that_polls_is_never_cut_by_a_proxy_that_cuts_idle_connections(
    running: Federation, control: RunControl, tmp_path: Path
) -> None:
    values = alone(tmp_path)
    data = values["clients"][CLIENT]["data"]
    tls = running.client_tls(CLIENT)
    with FaultProxy(running.address, idle_s=IDLE_S) as proxy, ThreadTrainer(proxy.address, CLIENT, data, tls=tls):
        eventually(lambda: proxy.num_cut > 0, "a stream is cut")
    with (
        FaultProxy(running.address, idle_s=IDLE_S) as proxy,
        ThreadTrainer(proxy.address, CLIENT, data, tls=tls, poll_hold_s=HOLD_S) as trainer,
    ):
        begin = time.monotonic()
        eventually(lambda: time.monotonic() > begin + 2 * IDLE_S, "there was long nothing to do")
        last = last_line(control, control.create(tiny_federation.run_document(values)).run_id)
        # The connection for blobs is idle, and cut, between transfers: nobody waits on it.
        assert trainer.value("retries_total", operation="join") == 0
    assert last == tiny_federation.simulated(tmp_path / "simulated", values)[-1]


@pytest.mark.parametrize("is_ending_tls", [True, False], ids=["that tells calls apart", "that passes TLS through"])
def test_trainers_that_poll_through_a_proxy_end_in_the_bytes_of_a_simulation(
    tmp_path: Path, is_ending_tls: bool
) -> None:
    """One that cuts idle calls and holds answers back, in plain text; and one that cuts idle connections, over TLS."""
    tiny_federation.write_data(tmp_path)
    values = tiny_federation.document(tmp_path)
    with Federation(tmp_path, tls=not is_ending_tls) as federation:
        federation.start_aggregator()
        control = RunControl(federation.address, tls=federation.operator_tls)
        proxy: CallProxy | FaultProxy = (
            CallProxy(federation.address, idle_s=IDLE_S, is_buffering=True)
            if is_ending_tls
            else FaultProxy(federation.address, idle_s=IDLE_S)
        )
        with proxy:
            for name in tiny_federation.CLIENTS:
                flags = ("--aggregator", proxy.address, "--sync", "poll", "--poll-hold-s", str(HOLD_S))
                federation.start_trainer(name, values["clients"][name]["data"], *flags)
            last = last_line(control, control.create(tiny_federation.run_document(values)).run_id)
            assert not is_ending_tls or proxy.num_cut == 0
        control.close()
    assert last == tiny_federation.simulated(tmp_path / "simulated", values)[-1]
