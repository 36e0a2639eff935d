"""An upload that the aggregator refuses while pieces are sent has the aggregator's reason, whenever the refusal comes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.errors import ScopeMissing
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as pb2_grpc
from fedplcc.shared.types import BlobRef
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.server import RpcServer

PIECE = b"x" * 1000
BLOB = BlobRef("model", hashlib.sha256(PIECE).hexdigest(), len(PIECE))


class Refusing(pb2_grpc.RunServiceServicer):
    """Asks for the model, and then refuses it."""

    async def UploadInitialModel(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for _header in requests:
            yield pb2.UploadInitialModelResponse(is_stored=False)
            raise ScopeMissing("the key has not the scope run", scope="run")


class FailsInWriting:
    """A call that gRPC fails while a piece is written, as it does when the server's refusal comes in that moment."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, message: Any) -> None:
        if message.WhichOneof("part") == "data":
            none = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, "Internal error from Core", "")
        await self._call.write(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


async def refusal(*, waits_for_it: bool, fails_in_writing: bool = False) -> None:
    server = RpcServer("127.0.0.1", 0)
    server.add(pb2_grpc.add_RunServiceServicer_to_server, Refusing(), pb2.DESCRIPTOR.services_by_name["RunService"])
    address = f"127.0.0.1:{await server.start()}"
    async with open_aio_channel(address) as channel:
        client = RunServiceClient(channel, address)
        calls = list[grpc.aio.StreamStreamCall[Any, Any]]()
        make = client._runs.UploadInitialModel

        def made(**named: Any) -> Any:
            calls.append(make(**named))
            return FailsInWriting(calls[-1]) if fails_in_writing else calls[-1]

        client._runs.UploadInitialModel = made

        async def pieces() -> AsyncIterator[bytes]:
            while waits_for_it and not calls[0].done():
                await asyncio.sleep(0)
            yield PIECE

        try:
            await client.store_model(BLOB, "a model", pieces())
        finally:
            await server.stop(0)


@pytest.mark.parametrize("waits_for_it", [True, False])
def test_the_aggregators_reason_is_given(waits_for_it: bool) -> None:
    with pytest.raises(ScopeMissing):
        asyncio.run(refusal(waits_for_it=waits_for_it))


def test_the_reason_is_given_also_where_grpc_fails_the_write_itself() -> None:
    with pytest.raises(ScopeMissing):
        asyncio.run(refusal(waits_for_it=False, fails_in_writing=True))
