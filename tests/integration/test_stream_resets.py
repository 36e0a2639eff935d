"""Streams that are opened and reset at full speed on one connection: nobody else's call is cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from typing import Any

import grpc
import pytest

from shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from shared.wire.channels import open_aio_channel
from shared.wire.server import RpcServer

NUM_CALLS = 40
ATTACKER = textwrap.dedent(
    """
    import socket, struct, sys, threading, time

    def frame(kind, flags, stream, body=b""):
        return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body

    def header(name, value):
        return b"\\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    def connected():
        link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        link.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + frame(4, 0, 0))
        threading.Thread(target=drain, args=(link,), daemon=True).start()
        return link

    def drain(link):
        try:
            while link.recv(1 << 16):
                pass
        except OSError:
            pass

    names = (b":method", b"POST"), (b":scheme", b"http"), (b":path", sys.argv[2].encode()), (b":authority", b"x")
    rest = (b"te", b"trailers"), (b"content-type", b"application/grpc")
    block = b"".join(header(*each) for each in (*names, *rest))
    link, stream, end = connected(), 1, time.monotonic() + 20
    print("begun", flush=True)
    while time.monotonic() < end:
        streams = range(stream, stream + 200, 2)
        reset = struct.pack(">I", 8)
        try:
            link.sendall(b"".join(frame(1, 4, each, block) + frame(3, 0, each, reset) for each in streams))
            stream += 200
        except OSError:
            link, stream = connected(), 1
    """
)


class Servicer(round_service_pb2_grpc.RoundServiceServicer):
    async def Heartbeat(self, request: Any, context: Any) -> Any:
        return round_service_pb2.HeartbeatResponse()


@pytest.mark.parametrize("method", ["Heartbeat", "NoSuch"])
def test_resets_on_one_connection_cancel_no_call_of_another(method: str) -> None:
    async def call_beside_resets() -> None:
        server = RpcServer("127.0.0.1", 0)
        service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
        server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, Servicer(), service)
        port = await server.start()
        command = [sys.executable, "-c", ATTACKER, str(port), f"/fedplcc.v1.RoundService/{method}"]
        attacker = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert attacker.stdout is not None
        try:
            assert await asyncio.to_thread(attacker.stdout.readline) == b"begun\n"
            async with open_aio_channel(f"127.0.0.1:{port}") as channel:
                stub = round_service_pb2_grpc.RoundServiceStub(channel)
                for _ in range(NUM_CALLS):
                    # Raises for a call that is cancelled.
                    await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=60)
                    await asyncio.sleep(0.05)
            assert attacker.poll() is None
        finally:
            attacker.kill()
            attacker.wait()
            attacker.stdout.close()
            await server.stop(0)

    try:
        asyncio.run(call_beside_resets())
    except grpc.aio.AioRpcError as error:
        pytest.fail(f"an honest call ended {error.code()}: {error.details()}")


@pytest.mark.parametrize("is_used_first", [False, True], ids=["never used", "used once"])
def test_a_connection_that_calls_nothing_ends_where_strangers_come(is_used_first: bool) -> None:
    async def wait_for_the_end() -> bool:
        server = RpcServer("127.0.0.1", 0, first_call_s=1.0)
        service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
        server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, Servicer(), service)
        port = await server.start()
        try:
            if is_used_first:
                async with open_aio_channel(f"127.0.0.1:{port}") as channel:
                    stub = round_service_pb2_grpc.RoundServiceStub(channel)
                    await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=60)
                    while channel.get_state() is grpc.ChannelConnectivity.READY:
                        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                    # Who calls again connects again.
                    await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=60)
                    return True
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            while await reader.read(1 << 16):
                pass
            writer.close()
            return True
        finally:
            await server.stop(0)

    assert asyncio.run(asyncio.wait_for(wait_for_the_end(), 60))
