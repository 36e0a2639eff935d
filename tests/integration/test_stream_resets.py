"""Streams opened and reset at full speed in plain text, and connections that call nothing, at a server of this process.

Over TLS, on many connections, at an aggregator of its own: test_hostile_connections.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from fedplcc.shared.gen.fedplcc.v1 import (
    enrol_service_pb2,
    enrol_service_pb2_grpc,
    round_service_pb2,
    round_service_pb2_grpc,
)
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.caller import Callers
from fedplcc.shared.wire.serving.server import RpcServer
from tests.support.federation.certificates import TestAuthority
from tests.support.federation.hostile_connections import hostile

WAIT_S = 60.0
FIRST_CALL_S = 1.0


class Servicer(round_service_pb2_grpc.RoundServiceServicer, enrol_service_pb2_grpc.EnrolServiceServicer):
    async def Heartbeat(self, request: Any, context: Any) -> Any:
        return round_service_pb2.HeartbeatResponse()

    async def GetTime(self, request: Any, context: Any) -> Any:
        return enrol_service_pb2.GetTimeResponse()


@pytest.mark.parametrize(
    ("method", "connections", "streams", "num_calls"),
    [
        ("Heartbeat", 1, 100, 40),
        pytest.param("NoSuch", 1, 100, 40, marks=pytest.mark.full),
        pytest.param("Heartbeat", 16, 300, 8, marks=pytest.mark.full),
    ],
)
def test_resets_cancel_no_call_of_another_at_this_machines_own_address(
    method: str, connections: int, streams: int, num_calls: int
) -> None:
    async def call_beside_resets() -> None:
        server = RpcServer("127.0.0.1", 0)
        service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
        server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, Servicer(), service)
        port = await server.start()
        attack = {"kind": "resets", "source": "127.0.0.1", "connections": connections, "streams": streams}
        try:
            with hostile(**attack, port=port, path=f"/fedplcc.v1.RoundService/{method}"):
                async with open_aio_channel(f"127.0.0.1:{port}") as channel:
                    stub = round_service_pb2_grpc.RoundServiceStub(channel)
                    for _ in range(num_calls):
                        # Raises for a call that is cancelled.
                        await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=WAIT_S)
                        await asyncio.sleep(0.05)
        finally:
            await server.stop(0)

    try:
        asyncio.run(call_beside_resets())
    except grpc.aio.AioRpcError as error:
        pytest.fail(f"an honest call ended {error.code()}: {error.details()}")


@pytest.mark.parametrize("is_used_first", [False, True], ids=["never used", "used once"])
def test_a_connection_that_calls_nothing_ends_where_strangers_come(is_used_first: bool) -> None:
    async def wait_for_the_end() -> None:
        authority = TestAuthority()
        tls, callers = authority.server_tls(demands_client=False), Callers(authority.certificates)
        server = RpcServer("127.0.0.1", 0, tls=tls, callers=callers, first_call_s=FIRST_CALL_S)
        service = enrol_service_pb2.DESCRIPTOR.services_by_name["EnrolService"]
        server.add(enrol_service_pb2_grpc.add_EnrolServiceServicer_to_server, Servicer(), service)
        port = await server.start()
        try:
            if not is_used_first:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while await reader.read(1 << 16):
                    pass
                writer.close()
                return
            async with open_aio_channel(f"127.0.0.1:{port}", tls=authority.certless().tls) as channel:
                stub = enrol_service_pb2_grpc.EnrolServiceStub(channel)
                await stub.GetTime(enrol_service_pb2.GetTimeRequest(), timeout=WAIT_S)
                while channel.get_state() is grpc.ChannelConnectivity.READY:
                    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
                # Who calls again connects again.
                await stub.GetTime(enrol_service_pb2.GetTimeRequest(), timeout=WAIT_S)
        finally:
            await server.stop(0)

    asyncio.run(asyncio.wait_for(wait_for_the_end(), WAIT_S))
