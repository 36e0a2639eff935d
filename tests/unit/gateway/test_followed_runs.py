"""Event streams of a gateway beside its other calls: they wait for no place on a connection, and neither do those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from fedplcc.gateway.http.middleware import MAX_LARGE_BODIES
from fedplcc.gateway.routes.dependencies import MAX_DOWNLOADS, MAX_EVENT_STREAMS, MAX_TURNS
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.gateway.spread_channel import CALLS_OF_ONE, CONNECTIONS, SpreadChannel
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as pb2_grpc
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.connections import MOST_OF_A_GATEWAY
from fedplcc.shared.wire.serving.server import MAX_STREAMS, RpcServer

WAIT_S = 60.0


class Servicer(pb2_grpc.RunServiceServicer):
    """A run without an event."""

    def __init__(self) -> None:
        self.followed, self.peers = asyncio.Semaphore(0), set[str]()

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.peers.add(context.peer())
        self.followed.release()
        await asyncio.Event().wait()
        yield pb2.WatchRunResponse()


async def test_as_many_runs_are_followed_as_a_gateway_may_and_other_calls_are_answered() -> None:
    servicer, server = Servicer(), RpcServer("127.0.0.1", 0)
    server.add(pb2_grpc.add_RunServiceServicer_to_server, servicer, pb2.DESCRIPTOR.services_by_name["RunService"])
    address = f"127.0.0.1:{await server.start()}"
    async with AsyncExitStack() as around, asyncio.timeout(WAIT_S):
        around.push_async_callback(server.stop, 0)
        made = [await around.enter_async_context(open_aio_channel(address)) for _ in range(CONNECTIONS)]
        channel = SpreadChannel(made)
        client = RunServiceClient(channel, address)
        tasks = [asyncio.ensure_future(anext(client.follow_events("run", after=0))) for _ in range(MAX_EVENT_STREAMS)]
        for _ in tasks:
            await servicer.followed.acquire()
        await client.check_health()
        assert len(servicer.peers) == 6, "no more than are needed"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert channel.num_calls == [0] * CONNECTIONS


def test_connections_have_room_for_all_that_goes_on_at_once_and_the_certificate_has_them() -> None:
    open_at_once = MAX_EVENT_STREAMS + MAX_DOWNLOADS + 2 * MAX_TURNS + MAX_LARGE_BODIES
    assert open_at_once < CONNECTIONS * CALLS_OF_ONE < CONNECTIONS * MAX_STREAMS
    assert CONNECTIONS < MOST_OF_A_GATEWAY
