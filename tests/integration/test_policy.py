"""The policy of a site's owner in whole processes: what a server sees of a site, and what others read of a refusal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.convert.tasks import task_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc, types_pb2
from fedplcc.shared.types import RunSpec, Task, TaskKind
from tests.support.federation.class_folders import NUM_PER_CLASS, write_class_folders
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, Process, eventually

POLICY = """
approve = "always"
runs.methods = ["fedavg"]
runs.most_rounds = 3

[leaves]
class_counts = false
losses = false
scores = false
readings = false
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Class folders with a few images each, to train and to test on."""
    return write_class_folders(tmp_path / "images")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(POLICY)
    return path


class RecordingServer(round_service_pb2_grpc.RoundServiceServicer):
    """Asks whoever joins for one task, whose images it takes away, and keeps every request."""

    def __init__(self, task: Task, images: Path) -> None:
        self.requests: list[tuple[str, Any]] = []
        self._task, self._images, self._ended = task, images, threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(8))
        round_service_pb2_grpc.add_RoundServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> RecordingServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.stop(0).wait()

    def of(self, name: str) -> list[Any]:
        return [request for method, request in self.requests if method == name]

    def Join(self, request: Any, context: Any) -> Any:
        self.requests.append(("Join", request))
        if self._images.exists():
            self._images.rename(self._images.with_name("gone"))
        answer = round_service_pb2.JoinResponse(version="1")
        answer.heartbeat_interval.FromMilliseconds(100)
        answer.lease.FromMilliseconds(600)
        answer.limits.max_chunk_bytes = answer.limits.max_blob_bytes = 1 << 20
        return answer

    def SyncRound(self, request: Any, context: Any) -> Iterator[Any]:
        self.requests.append(("SyncRound", request))
        yield round_service_pb2.SyncRoundResponse(task=task_to_proto(self._task))
        while context.is_active() and not self._ended.wait(0.1):
            pass

    def Heartbeat(self, request: Any, context: Any) -> Any:
        self.requests.append(("Heartbeat", request))
        return round_service_pb2.HeartbeatResponse(
            directive=round_service_pb2.HeartbeatResponse.Directive.DIRECTIVE_CONTINUE
        )

    def _refused(self, request: Any, context: Any) -> Any:
        self.requests.append(("another", request))
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "the test takes nothing else")

    DownloadBlob = GetUploadStatus = UploadModel = UploadPrototypes = CommitUpdate = ReportEvaluation = _refused


def a_task(kind: TaskKind, **run: Any) -> Task:
    config = parse_run_config(
        {
            "run": {"method": "fedavg", "rounds": 3, "clients": ["ann"], **run},
            "model": {"name": "cnn4"},
            "data": {"classes": list(CLASSES), "image_size": 16},
        }
    )
    spec = RunSpec(run_id="run-1", config_json=config.canonical_json, config_hash=config.hash)
    return Task(kind=kind, run=spec, round=1, total_rounds=config.run.rounds)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE])
def test_a_server_sees_of_a_forbidden_run_a_join_heartbeats_and_the_refusal(
    kind: TaskKind, images: Path, policy: Path, tmp_path: Path
) -> None:
    with RecordingServer(a_task(kind, rounds=4), images) as server:
        arguments = ["trainer", "--insecure", "--aggregator", f"127.0.0.1:{server.port}", "--client", "ann"]
        arguments += ["--data", f"folder:{images}", "--state-dir", str(tmp_path / "ann"), "--device", "cpu"]
        trainer = Process("ann", tmp_path, [*arguments, "--policy", str(policy)])
        trainer.start()
        try:
            refused = eventually(
                lambda: next((beat for beat in server.of("Heartbeat") if beat.HasField("problem")), None), "it refuses"
            )
            before = len(server.requests)
            eventually(lambda: len(server.requests) > before + 3, "it goes on to say that it is there")
        finally:
            trainer.end()
    assert {name for name, _ in server.requests} == {"Join", "SyncRound", "Heartbeat"}
    (joined,) = server.of("Join")
    assert joined.num_examples == NUM_PER_CLASS * len(CLASSES)
    assert not joined.class_counts
    assert not any(beat.readings for beat in server.of("Heartbeat"))
    said = [beat.problem for beat in server.of("Heartbeat") if beat.HasField("problem")]
    assert (refused.run_id, {problem.reason for problem in said}) == ("run-1", {"POLICY_FORBIDS"})
    assert "runs.most_rounds = 3, and the run has 4 rounds (run.rounds); nothing was read for it" in said[0].detail
    assert "fedplcc config check policy.toml --run FILE" in said[0].hint
    assert said[0].is_fatal


@pytest.mark.timeout(300)
def test_a_run_ends_without_what_a_site_keeps_and_others_read_why_it_refuses_another(
    images: Path, policy: Path, tmp_path: Path
) -> None:
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.5")
        federation.start_trainer("ann", f"folder:{images}", "--policy", str(policy))
        federation.start_gateway()
        control = RunControl(federation.address, tls=federation.operator_tls)
        document: dict[str, Any] = {
            "run": {"method": "fedavg", "rounds": 2, "clients": ["ann", "bob"]},
            "model": {"name": "cnn4"},
            "data": {"classes": list(CLASSES), "image_size": 16},
            "training": {"local_steps": 1, "batch_size": 4},
        }
        bob = NumpyClient("bob", counts=(NUM_PER_CLASS,) * len(CLASSES))
        with NumpyTrainer(federation.address, bob, tls=federation.client_tls("bob")):
            run_id = control.create(document).run_id
            ended = types_pb2.RUN_STATUS_COMPLETED
            eventually(lambda: control.get(run_id).status == ended, "the run completes", 120)
        found = _get(federation, f"/v1/runs/{run_id}/rounds")["rounds"][-1]
        assert found["metrics"]["accuracy"]["bob-domain"] is not None
        assert found["metrics"]["accuracy"]["ann"] is None, "its scores stay there"
        clients = {client["client_id"]: client for client in _get(federation, "/v1/clients")["clients"]}
        assert (clients["ann"]["class_counts"], clients["ann"]["readings"]) == ({}, {})

        alone = {**document["run"], "rounds": 3, "clients": ["ann"], "patience": 1}
        run_id = control.create({**document, "run": alone, "data": {**document["data"], "validation_every": 2}}).run_id
        eventually(lambda: control.get(run_id).status == ended, "a run whose scores all stay away completes", 120)
        lines = [each["metrics"]["accuracy"] for each in _get(federation, f"/v1/runs/{run_id}/rounds")["rounds"][1:]]
        assert lines == [{"ann": None, "mean": None, "worst": None}] * 3, "and no patience ends it"

        forbidden = control.create(
            {**document, "run": {**document["run"], "method": "moon", "clients": ["ann"]}}
        ).run_id

        def refusal() -> Any:
            events = _get(federation, f"/v1/runs/{forbidden}/events?page_size=1000")["events"]
            return next((event["data"] for event in events if event["type"] == "client_problem"), None)

        said = eventually(refusal, "the history says it")
        assert said["reason"] == "POLICY_FORBIDS"
        assert 'runs.methods = ["fedavg"], and the run has run.method = "moon"' in said["detail"]
        (ann,) = [each for each in _get(federation, "/v1/clients")["clients"] if each["client_id"] == "ann"]
        assert (ann["problem"]["reason"], ann["problem"]["detail"]) == (said["reason"], said["detail"])
        control.close()


def _get(federation: Federation, path: str) -> Any:
    return federation.ask(path, Accept="application/json")
