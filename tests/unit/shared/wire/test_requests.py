"""Bytes of requests while their call waits."""

from __future__ import annotations

import asyncio
import sys

import grpc.aio

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.wire.call_logs import Call
from fedplcc.shared.wire.serving.requests import RawRequests, Requests


class Context:
    """What gRPC gives a handler, as far as reading goes."""

    def __init__(self, data: bytes) -> None:
        self._left: list[object] = [data, grpc.aio.EOF]  # type: ignore[attr-defined]  # the stubs are older

    async def read(self) -> object:
        """The next message."""
        return self._left.pop(0)


async def num_kept(data: bytes) -> int:
    """References to a stream's message that were made since, while its call does something with what it says."""
    before = sys.getrefcount(data)
    requests = Requests(
        "UploadModel", round_pb2.UploadModelRequest.FromString, is_stream=True, idle_s=1.0, received=lambda: None
    )
    messages = requests.each(RawRequests(Context(data)), Call("/fedplcc.v1.RoundService/UploadModel"))
    assert (await anext(messages)).chunk.offset_bytes == 7
    kept = sys.getrefcount(data) - before
    assert await anext(messages, None) is None
    return kept


def test_a_piece_of_a_blob_is_not_kept_as_it_came_while_it_is_written() -> None:
    chunk = round_pb2.Chunk(offset_bytes=7, data=b"x" * 1000)
    assert asyncio.run(num_kept(round_pb2.UploadModelRequest(chunk=chunk).SerializeToString())) == 0
