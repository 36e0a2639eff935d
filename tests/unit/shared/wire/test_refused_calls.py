"""Log lines of refused and cancelled calls: a few, whatever a caller does, and another's are there all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from fedplcc.shared.errors import NotAMember
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving import connections
from fedplcc.shared.wire.serving.server import RpcServer
from tests.support.records.captured_logs import Lines, logged

NUM_CALLS = 1000
MOST_BYTES = 8000
"""Bytes of log of all refused calls of one kind by one caller within a minute."""


class Servicer(round_service_pb2_grpc.RoundServiceServicer):
    async def Heartbeat(self, request: Any, context: Any) -> Any:
        raise NotAMember(f"{request.run_id} does not know you")

    async def DownloadBlob(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for _ in range(200):
            yield round_service_pb2.DownloadBlobResponse(chunk=round_service_pb2.Chunk(data=b"x" * (1 << 18)))
            await asyncio.sleep(0)


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    server = RpcServer("127.0.0.1", 0)
    service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
    server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, Servicer(), service)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


@asynccontextmanager
async def calling_from(address: str, port: int) -> AsyncIterator[grpc.aio.Channel]:
    """A channel whose connections come from another address of this machine."""

    forwarding: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        forwarding.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    relay = await asyncio.start_server(forward, "127.0.0.1", 0)
    async with open_aio_channel(f"127.0.0.1:{relay.sockets[0].getsockname()[1]}") as channel:
        yield channel
    relay.close()
    await asyncio.gather(*forwarding)  # one that is cancelled is logged as a crash


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def heartbeat(channel: grpc.aio.Channel) -> None:
    request = round_service_pb2.HeartbeatRequest(run_id="://:::" * 6000, client_id="a")
    await round_service_pb2_grpc.RoundServiceStub(channel).Heartbeat(request, timeout=60)


async def unknown(channel: grpc.aio.Channel) -> None:
    await channel.unary_unary(f"/fedplcc.v1.RoundService/{'No' * 1500}", None, None)(b"", timeout=60)


async def many(call: Any, channel: grpc.aio.Channel) -> set[grpc.StatusCode]:
    codes = set()
    for _ in range(NUM_CALLS // 50):
        answers = await asyncio.gather(*(call(channel) for _ in range(50)), return_exceptions=True)
        codes |= {answer.code() for answer in answers if isinstance(answer, grpc.aio.AioRpcError)}
    return codes


@pytest.mark.parametrize(
    ("call", "code"), [(heartbeat, grpc.StatusCode.PERMISSION_DENIED), (unknown, grpc.StatusCode.UNIMPLEMENTED)]
)
def test_a_thousand_refused_calls_are_a_line_and_another_callers_is_there(
    call: Any, code: grpc.StatusCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IN_VAIN_AT_ONCE", 2.0 * NUM_CALLS)  # its connection goes on

    async def refused() -> None:
        async with serving() as port, open_aio_channel(f"127.0.0.1:{port}") as channel:
            assert await many(call, channel) == {code}
            assert len(lines.stream.getvalue()) < MOST_BYTES
            async with calling_from("127.0.0.2", port) as another:
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(another)

    with logged("info") as lines:
        asyncio.run(refused())
    assert [line["peer"].partition(":")[0] for line in lines("rpc")] == ["127.0.0.1", "127.0.0.2"]
    assert {line.get("code", line["event"]) for line in lines()} == {code.name}


def test_an_id_and_a_method_that_cannot_be_one_are_not_logged() -> None:
    async def refused() -> None:
        async with serving() as port, open_aio_channel(f"127.0.0.1:{port}") as channel:
            for call in (heartbeat, unknown):
                with pytest.raises(grpc.aio.AioRpcError):
                    await call(channel)

    with logged() as lines:
        asyncio.run(refused())
    known, other = lines("rpc")
    assert (known["run_id"], known["client_id"]) == ("<36000 characters>", "a")
    assert other["method"] == "<3025 characters>"


def test_a_download_whose_reader_leaves_is_no_crash() -> None:
    async def leave(port: int, turn: int) -> None:
        channel = open_aio_channel(f"127.0.0.1:{port}")
        stub: Any = round_service_pb2_grpc.RoundServiceStub(channel)
        calls = [stub.DownloadBlob(round_service_pb2.DownloadBlobRequest()) for _ in range(8)]
        for number, call in enumerate(calls):
            for _ in range(number % 3):
                await call.read()
        if turn % 2:
            for call in calls:
                call.cancel()
        await channel.close(None)

    async def download(lines: Lines) -> None:
        async with serving() as port:
            for turn in range(20):
                await leave(port, turn)

    with logged() as lines:
        asyncio.run(download(lines))
    assert {line["code"] for line in lines("rpc")} <= {"CANCELLED"}
    assert lines("rpc")
    assert {line["event"] for line in lines()} <= {"rpc", "answer_not_sent"}
    assert "Traceback" not in lines.stream.getvalue()
