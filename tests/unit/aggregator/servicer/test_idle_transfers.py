"""A live client that sends or reads nothing holds a transfer for the idle limit, not for ever, and then goes on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from pathlib import Path

import pytest

from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.shared.codes import Code
from fedplcc.shared.errors import MalformedRequest, TransferIdle
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from fedplcc.shared.types import Task, TaskKind
from fedplcc.shared.wire import statuses
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.statuses import translated
from tests.support.federation.grpc_client import DEADLINE_S, GrpcClient
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

IDLE_S = 0.2
MODEL_ROWS = 1_500_000
"""Rows of a model of 36 MB: more than the buffers of a connection take in while nobody reads."""


class Ends(CallObserver):
    """Puts down how calls end."""

    def __init__(self, ended: queue.SimpleQueue[tuple[str, str]]) -> None:
        self._ended = ended

    def ended(self, method: str, code: str, seconds: float) -> None:
        self._ended.put((method, code))


class Served:
    """A coordinator's RoundService on a port, and how its calls ended."""

    def __init__(self, federation: LocalFederation) -> None:
        self.ended: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._federation = federation
        self._is_up = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._serving = self._pool.submit(asyncio.run, self._serve())
        assert self._is_up.wait(DEADLINE_S)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = RpcServer("127.0.0.1", 0, observer=Ends(self.ended), idle_s=IDLE_S)
        servicer = RoundServicer(self._federation.coordinator, Wakeups(self._loop), lease_check_s=60.0, idle_s=IDLE_S)
        server.add(
            round_grpc.add_RoundServiceServicer_to_server,
            servicer,
            round_pb2.DESCRIPTOR.services_by_name["RoundService"],
        )
        server.add(
            run_grpc.add_RunServiceServicer_to_server,
            RunServicer(self._federation.coordinator, Wakeups(self._loop), idle_s=IDLE_S),
            run_pb2.DESCRIPTOR.services_by_name["RunService"],
        )
        self.address = f"127.0.0.1:{await server.start()}"
        self._is_up.set()
        await self._closing.wait()
        await server.stop(0)

    def end_of(self, method: str) -> str:
        """The status code with which the next call of a method ends."""
        while True:
            name, code = self.ended.get(timeout=DEADLINE_S)
            if name.endswith(f"/{method}"):
                return code

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._serving.result(DEADLINE_S)
        self._pool.shutdown()


@pytest.fixture
def federation(folder: Path) -> Iterator[LocalFederation]:
    client = NumpyClient("ann", size=MODEL_ROWS)
    with LocalFederation(folder, (client,)) as federation:
        federation.chunk_bytes = 1 << 20
        federation.join()
        federation.create()
        yield federation


@pytest.fixture
def served(federation: LocalFederation) -> Iterator[Served]:
    served = Served(federation)
    yield served
    served.close()


@pytest.fixture
def ann(federation: LocalFederation, served: Served) -> Iterator[GrpcClient]:
    client = GrpcClient(served.address, federation.clients["ann"])
    yield client
    client.close()


def present_task(federation: LocalFederation) -> Task:
    return federation.task(federation.clients["ann"])


def test_an_upload_that_stands_still_ends_with_its_reason_and_goes_on_from_its_last_byte(
    federation: LocalFederation, served: Served, ann: GrpcClient
) -> None:
    task = present_task(federation)
    assert task.kind is TaskKind.INIT
    ((blob, data),) = ann.client.work(task, None)[1].items()
    is_over = threading.Event()

    def then_nothing() -> Iterator[tuple[int, bytes]]:
        yield 0, data[:1000]
        is_over.wait(DEADLINE_S)

    with pytest.raises(TransferIdle, match=r"the client sends nothing for 0\.2 s") as ended:
        ann.upload_parts(task, blob, then_nothing())
    is_over.set()
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    assert ann.upload_status(task, blob).offset_bytes == 1000
    ann.upload(task, blob, data, chunk_bytes=1 << 20)
    assert ann.upload_status(task, blob).is_complete


def test_an_upload_of_empty_chunks_ends_at_once_and_goes_on_from_its_last_byte(
    federation: LocalFederation, ann: GrpcClient
) -> None:
    task = present_task(federation)
    ((blob, data),) = ann.client.work(task, None)[1].items()
    with pytest.raises(MalformedRequest, match="a chunk has bytes"):
        ann.upload_parts(task, blob, chain([(0, data[:1000])], repeat((1000, b""))))
    assert ann.upload_status(task, blob).offset_bytes == 1000


def test_an_upload_without_even_a_header_ends(served: Served, ann: GrpcClient) -> None:
    is_over = threading.Event()

    def nothing() -> Iterator[round_pb2.UploadModelRequest]:
        is_over.wait(DEADLINE_S)
        yield from ()

    with pytest.raises(TransferIdle), translated():
        ann.stub.UploadModel(nothing(), timeout=DEADLINE_S)
    is_over.set()


def test_a_download_that_nobody_reads_is_let_go_and_goes_on_from_its_last_byte(
    federation: LocalFederation, served: Served, ann: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "STATUS_S", IDLE_S)
    federation.step()
    task = present_task(federation)
    assert task.kind is TaskKind.TRAIN
    (blob,) = task.payload.tensor_groups
    request = round_pb2.DownloadBlobRequest(client_id="ann", instance_token=ann.token, sha256=blob.sha256)
    call = ann.stub.DownloadBlob(request, timeout=DEADLINE_S)
    assert served.end_of("DownloadBlob") == "DEADLINE_EXCEEDED", "while nobody reads"
    pieces: list[bytes] = []
    with pytest.raises(TransferIdle, match="the other end reads nothing"), translated():
        pieces.extend(part.chunk.data for part in call)
    data = b"".join(pieces)
    assert 0 < len(data) < blob.size_bytes
    data += ann.download(blob, len(data))
    assert served.end_of("DownloadBlob") == "OK"
    assert federation.fetch(ann.client, task) == data


def test_an_artifact_that_nobody_reads_is_let_go(
    federation: LocalFederation, served: Served, ann: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "STATUS_S", IDLE_S)
    federation.step()
    (run,) = federation.coordinator.list_runs(limit=1)
    request = run_pb2.FetchArtifactRequest(run_id=run.run_id, round=0, kind=run_pb2.ARTIFACT_KIND_MODEL)
    call = run_grpc.RunServiceStub(ann.channel).FetchArtifact(request, timeout=DEADLINE_S)
    assert served.end_of("FetchArtifact") == "DEADLINE_EXCEEDED", "while nobody reads"
    with pytest.raises(TransferIdle, match="the other end reads nothing"), translated():
        list(call)
