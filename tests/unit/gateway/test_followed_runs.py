"""Event streams of a gateway beside its other calls: they wait for no place on a connection, and neither do those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from gateway.routes.dependencies import MAX_EVENT_STREAMS
from gateway.run_service import FOLLOWED_BY_ONE, RunServiceClient
from shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from shared.gen.fedplcc.v1 import run_service_pb2_grpc as pb2_grpc
from shared.wire.channels import open_aio_channel
from shared.wire.server import MAX_STREAMS, RpcServer

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


def test_as_many_runs_are_followed_as_a_gateway_may_and_other_calls_are_answered() -> None:
    async def follow() -> None:
        servicer, server = Servicer(), RpcServer("127.0.0.1", 0)
        server.add(pb2_grpc.add_RunServiceServicer_to_server, servicer, pb2.DESCRIPTOR.services_by_name["RunService"])
        address = f"127.0.0.1:{await server.start()}"
        async with AsyncExitStack() as around, asyncio.timeout(WAIT_S):
            around.push_async_callback(server.stop, 0)
            first, *following = [await around.enter_async_context(open_aio_channel(address)) for _ in range(7)]
            client = RunServiceClient(first, address, following=following)
            tasks = [
                asyncio.ensure_future(anext(client.follow_events("run", after=0))) for _ in range(MAX_EVENT_STREAMS)
            ]
            for _ in tasks:
                await servicer.followed.acquire()
            assert len(servicer.peers) == 6
            await client.check_health()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert [each.num_calls for each in client._following] == [0] * 6

    asyncio.run(follow())


def test_a_connection_has_room_for_them() -> None:
    assert FOLLOWED_BY_ONE < MAX_STREAMS
