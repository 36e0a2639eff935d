"""What arrives at an aggregator is what the log of the site says, byte for byte, and was there before it arrived."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import AggregatorUnavailable, DiskFull, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.process import disk
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import (
    LOCAL_CLUSTER,
    BlobRef,
    Client,
    ClientActivity,
    ClientProblem,
    Environment,
    Evaluation,
    EvaluationCounts,
    Heartbeat,
    Payload,
    RunSpec,
    Update,
)
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.aggregator.egress_gate import EgressGate
from fedplcc.trainer.cancellation import never
from fedplcc.trainer.owner.egress.log import EgressLog, Line, lines_in
from fedplcc.trainer.readings.metrics import TrainerMetrics
from tests.support.federation.recording_proxy import Received, RecordingProxy
from tests.unit.trainer.aggregator.troubled_server import BLOB, DATA, TOKEN, Quick, Server

ANN = Client(
    client_id="ann",
    domain="d",
    num_examples=3,
    class_counts={"a": 1, "b": 2},
    environment=Environment(packages={"torch": "2", "numpy": "1"}, cpu="c", device="cpu", platform="p"),
)
RUN = "run-1"
PROBLEM = ClientProblem(reason="INVALID_DATA", detail="no data", hint="mend them", is_fatal=True)


class AnsweringServer(Server):
    """Takes everything that a trainer sends."""

    def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        self._answer("Heartbeat", context)
        return pb.HeartbeatResponse()

    def ReportEvaluation(self, request: Any, context: Any) -> pb.ReportEvaluationResponse:
        self._answer("ReportEvaluation", context)
        return pb.ReportEvaluationResponse()


@pytest.fixture
def servicer() -> Server:
    return AnsweringServer()


@pytest.fixture
def proxy(server: Server) -> Iterator[RecordingProxy]:
    with RecordingProxy(f"127.0.0.1:{server.port}") as proxy:  # type: ignore[attr-defined]
        yield proxy


@pytest.fixture
def gate(tmp_path: Path) -> EgressGate:
    gate = EgressGate(EgressLog(tmp_path), lambda: 0.25)
    gate.saw(RunSpec(run_id=RUN, config_json='{"privacy":{"claim":"site"}}', config_hash="h"))
    return gate


@pytest.fixture
def client(proxy: RecordingProxy, gate: EgressGate) -> Iterator[AggregatorConnection]:
    metrics = TrainerMetrics(new_registry("trainer"))
    client = AggregatorConnection(proxy.address, "ann", TOKEN, metrics, egress=gate, rng=Quick())
    yield client
    client.close()


def lines(folder: Path) -> list[Line]:
    found = list(lines_in(folder))
    assert None not in found
    return [line for line in found if line is not None]


def test_a_document_that_nobody_has_checked_makes_no_line_long(gate: EgressGate, tmp_path: Path) -> None:
    """Long lines would push those of what left before out of the log."""
    gate.saw(RunSpec(run_id=RUN, config_json=json.dumps({"privacy": {"claim": "x" * 100_000}}), config_hash="h"))
    request = pb.HeartbeatRequest(client_id="ann", run_id=RUN, problem=types_pb2.ClientProblem(reason="R"))
    gate.check("Heartbeat", request, b"")
    assert [line.claim for line in lines(tmp_path)] == ["none"]


@pytest.mark.parametrize("run_id", ["r" * 129, "a\nb", "../up", "<b>"])
def test_a_task_with_an_id_that_no_run_has_is_refused(run_id: str) -> None:
    message = types_pb2.RoundTask(kind=types_pb2.TASK_KIND_TRAIN, run=types_pb2.RunSpec(run_id=run_id))
    with pytest.raises(MalformedRequest, match="run_id"):
        task_from_proto(message)


def beat(number: int, **facts: Any) -> Heartbeat:
    return Heartbeat(
        client_id="ann",
        activity=ClientActivity.TRAINING,
        run_id=RUN,
        round=1,
        progress=number / 100,
        **{"readings": {"batch_seconds": float(number), "unreadable_files": 0.0}, **facts},
    )


def update() -> Update:
    losses = {name: 0.5 for name in ("a", "b", "c")}
    return Update(
        client_id="ann",
        payload=Payload(tensor_groups=(BLOB,)),
        num_examples=3,
        class_counts=(1, 2),
        losses=losses,
        timings={"z": 1.0, "y": 2.0},
    )


def everything(client: AggregatorConnection, server: Server) -> None:
    """What a trainer sends in a round, with calls that break off and are made again."""
    client.join(ANN)
    for number in range(10):
        client.heartbeat(beat(number))
    client.heartbeat(beat(11, readings={"batch_seconds": 1.0, "unreadable_files": 2.0}))
    for number in range(3):
        client.heartbeat(beat(number, problem=PROBLEM))
    client.heartbeat(Heartbeat(client_id="ann", is_leaving=True))
    task = client.for_task(never)
    server.trouble["UploadModel"] = [2000]
    task.store(RUN, 1, BLOB, DATA, is_prototypes=False)
    server.trouble["CommitUpdate"] = [AggregatorUnavailable("broken off")]
    task.commit_update(RUN, 1, update())
    task.announce(ANN)
    counts = EvaluationCounts(set_name="test", model="global", correct=(1, 0), total=(2, 1))
    task.report_evaluation(RUN, 1, Evaluation(client_id="ann", domain="d", counts=(counts,)))


def test_what_arrives_is_what_the_log_says_byte_for_byte(
    client: AggregatorConnection, server: Server, proxy: RecordingProxy, tmp_path: Path
) -> None:
    everything(client, server)
    found = lines(tmp_path)
    assert [(line.what, line.run, line.round, line.roles) for line in found] == [
        ("join", "", None, ()),
        ("readings", RUN, 1, ()),
        ("readings", RUN, 1, ()),
        ("problem", RUN, 1, ()),
        ("upload", RUN, 1, ("model",)),
        ("commit", RUN, 1, ("model",)),
        ("report", RUN, 1, ()),
    ]
    assert {(line.claim, line.epsilon) for line in found if line.run} == {("site", 0.25)}
    assert (found[0].claim, found[0].epsilon) == (None, 0.25)
    arrived = {each.sha256: len(each.data) for each in proxy.received}
    by_bytes = [line for line in found if line.what != "upload"]
    assert all(arrived[line.sha256] == line.bytes for line in by_bytes)
    listed = {line.sha256 for line in by_bytes}
    unary = ("Join", "CommitUpdate", "ReportEvaluation")
    assert {each.sha256 for each in proxy.received if each.method in unary} <= listed
    assert Counter(each.method for each in proxy.received)["CommitUpdate"] == 2
    assert proxy.uploaded("ann") == {(line.sha256, line.bytes) for line in found if line.what == "upload"}
    assert said_in(proxy.received) == said_in([each for each in proxy.received if each.sha256 in listed])


def said_in(received: list[Received]) -> set[tuple[object, ...]]:
    """What heartbeats said of the site."""
    beats = [each.message for each in received if each.method == "Heartbeat"]
    return {
        (beat.problem.SerializeToString(), tuple(beat.readings), beat.readings.get("unreadable_files"))
        for beat in beats
        if beat.readings or beat.HasField("problem")
    }


def test_the_line_is_there_before_the_first_byte_arrives(
    client: AggregatorConnection, server: Server, proxy: RecordingProxy, tmp_path: Path
) -> None:
    late: list[str] = []

    def arrived(received: Received) -> None:
        listed = {line.sha256 for line in lines(tmp_path)}
        header = getattr(received.message, "header", None)
        wanted = received.sha256 if header is None else header.blob.sha256
        if received.sender and received.method != "Heartbeat" and wanted not in listed:
            late.append(received.method)

    proxy.arrived = arrived
    everything(client, server)
    assert len(proxy.received) > 20
    assert late == []


def test_where_no_line_can_be_written_nothing_leaves_and_nothing_waits_for_ever(
    client: AggregatorConnection, proxy: RecordingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.join(ANN)
    client.heartbeat(beat(1))
    before = len(proxy.received)

    def full(*_given: Any, **_named: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "append", full)
    task = client.for_task(never)
    prototypes = BlobRef(role=LOCAL_CLUSTER, sha256=BLOB.sha256, size_bytes=BLOB.size_bytes)
    for send in (
        lambda: client.join(Client(client_id="ann", domain="other")),
        lambda: client.heartbeat(beat(2, problem=PROBLEM)),
        lambda: task.store(RUN, 1, BLOB, DATA, is_prototypes=False),
        lambda: task.store(RUN, 2, prototypes, DATA, is_prototypes=True),
        lambda: task.commit_update(RUN, 1, update(), [DATA]),
        lambda: task.report_evaluation(RUN, 1, Evaluation(client_id="ann", domain="d", counts=())),
    ):
        with pytest.raises(DiskFull, match="cannot be written down, so it does not leave"):
            send()
    assert len(proxy.received) == before
    client.heartbeat(beat(3))  # says nothing new: the lease is kept
    task.announce(ANN)
    assert [each.method for each in proxy.received[before:]] == ["Heartbeat", "Join"]
