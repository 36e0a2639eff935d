"""Failpoints cost and do nothing until a test arms a process; then they tell, and kill, exactly where they are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.process import failpoints
from fedplcc.shared.process.failpoints import passing
from fedplcc.shared.wire.channels import open_channel
from tests.support import ROOT


@pytest.fixture
def passed() -> Iterator[list[str]]:
    names: list[str] = []
    failpoints.install(names.append)
    yield names
    failpoints.install(None)


def test_only_the_environment_arms_a_process_and_its_log_says_so(tmp_path: Path) -> None:
    answer = run(tmp_path, "pass")
    assert b"failpoints_are_armed" in answer.stderr + answer.stdout
    assert b"FEDPLCC_FAILPOINTS" in answer.stderr + answer.stdout
    assert (tmp_path / failpoints.PASSED_FILE).read_text() == ""


def test_a_block_passes_its_second_failpoint_only_if_it_succeeds(passed: list[str]) -> None:
    with passing("disk", "step"):
        passed.append("the step")
    with pytest.raises(ValueError, match="no room"), passing("disk", "step"):
        raise ValueError("no room")
    assert passed == ["disk.step.before", "the step", "disk.step.after", "disk.step.before"]


def run(folder: Path, code: str) -> subprocess.CompletedProcess[bytes]:
    program = "from fedplcc.shared.process.failpoints import *; from fedplcc.shared.process import log\n"
    program += f"log.set_up('info'); arm_from_environment()\n{code}"
    environment = {**os.environ, failpoints.VARIABLE: str(folder)}
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, timeout=60)


def test_an_armed_process_tells_what_it_passes_and_dies_at_the_passing_that_it_is_told(tmp_path: Path) -> None:
    (tmp_path / failpoints.ARMED_FILE).write_text("b 3")
    answer = run(tmp_path, "for _ in range(5):\n    failpoint('a')\n    failpoint('b')\nprint('lived')")
    assert answer.returncode == -signal.SIGKILL
    assert (tmp_path / failpoints.PASSED_FILE).read_text().split() == ["a", "b"] * 3


def test_passings_count_from_when_the_process_is_told(tmp_path: Path) -> None:
    lines = [
        "failpoint('b')",
        f"open({str(tmp_path / 'armed')!r}, 'w').write('b 2')",
        "failpoint('b')",
        "failpoint('a')",
    ]
    assert run(tmp_path, "\n".join([*lines, "failpoint('b')"])).returncode == -signal.SIGKILL
    assert (tmp_path / failpoints.PASSED_FILE).read_text().split() == ["b", "b", "a", "b"]


class Answering(round_grpc.RoundServiceServicer):
    """Answers calls of every kind that a trainer makes."""

    def Heartbeat(self, request: round_pb2.HeartbeatRequest, context: object) -> round_pb2.HeartbeatResponse:
        return round_pb2.HeartbeatResponse()

    def SyncRound(self, request: round_pb2.SyncRoundRequest, context: object) -> Iterator[round_pb2.SyncRoundResponse]:
        yield round_pb2.SyncRoundResponse()
        yield round_pb2.SyncRoundResponse()

    def UploadModel(
        self, request_iterator: Iterator[round_pb2.UploadModelRequest], context: object
    ) -> round_pb2.UploadModelResponse:
        return round_pb2.UploadModelResponse(offset_bytes=len(list(request_iterator)))

    def Join(self, request: round_pb2.JoinRequest, context: grpc.ServicerContext) -> round_pb2.JoinResponse:
        context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        raise AssertionError


@pytest.fixture
def address() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    round_grpc.add_RoundServiceServicer_to_server(Answering(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_every_kind_of_call_has_failpoints_before_and_after_and_around_each_message(
    passed: list[str], address: str
) -> None:
    with open_channel(address, failpoints="trainer.rpc") as channel:
        stub = round_grpc.RoundServiceStub(channel)
        stub.Heartbeat(round_pb2.HeartbeatRequest(), timeout=20)
        assert passed == ["trainer.rpc.Heartbeat.before", "trainer.rpc.Heartbeat.after"]
        passed.clear()

        answers = stub.SyncRound(round_pb2.SyncRoundRequest(), timeout=20)
        assert len(list(answers)) == 2
        answers.cancel()
        received = ["trainer.rpc.SyncRound.received.before", "trainer.rpc.SyncRound.received.after"]
        assert passed == ["trainer.rpc.SyncRound.before", *received, *received, "trainer.rpc.SyncRound.after"]
        passed.clear()

        parts = iter([round_pb2.UploadModelRequest(), round_pb2.UploadModelRequest()])
        assert stub.UploadModel.future(parts, timeout=20).result().offset_bytes == 2
        sent = ["trainer.rpc.UploadModel.sent.before", "trainer.rpc.UploadModel.sent.after"]
        assert sorted(passed) == sorted(
            ["trainer.rpc.UploadModel.before", *sent, *sent, "trainer.rpc.UploadModel.after"]
        )
