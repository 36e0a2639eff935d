"""Requests of one method's calls, which are received and decoded only once the caller is admitted.

gRPC would receive and decode the request of a unary call before anybody looks at who calls. On the wire such a call is a
stream of one message, so the server takes it as one: nothing is read of a caller that is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Any, cast

import grpc.aio
from google.protobuf.message import DecodeError

from fedplcc.shared.errors import MalformedRequest, TransferIdle
from fedplcc.shared.wire.call_logs import Call
from fedplcc.shared.wire.serving.message_size import require_few_fields

LARGE_BYTES = {
    "Join": 2 << 20,
    "CommitUpdate": None,
    "ReportEvaluation": None,
    "UploadModel": None,
    "UploadPrototypes": None,
    "CreateRun": None,
    "UploadInitialModel": None,
}
"""Largest request of the methods that carry counts by class, pieces of blobs or configurations; None for a whole message."""
SMALL_BYTES = 256 << 10
"""Largest request of all other methods."""
MOST_FIELDS = 1 << 16
"""Most fields of a request: 10,000 classes with their counts, and a third more."""
MOST_FIELDS_OF_A_PIECE = 256
"""Most fields of a message of a stream: a header, or a piece of a blob."""
ON_LOOP_BYTES = 64 << 10
"""Largest request that is decoded on the event loop, in about a millisecond at most."""

SLOW_S = 1.0
"""Time for a request to arrive, after which its caller is looked at again."""


class Requests:
    """Reader of the requests of one method's calls."""

    def __init__(
        self,
        name: str,
        decode: Callable[[bytes], Any],
        *,
        is_stream: bool,
        idle_s: float,
        received: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            decode: Makes a message of its bytes; the generated code's.
            is_stream: Whether the method takes a stream.
            idle_s: Longest wait for the request of a method that takes one.
        """
        self._decode, self._is_stream, self._idle_s = decode, is_stream, idle_s
        self._received = received
        self._most_bytes = LARGE_BYTES.get(name, SMALL_BYTES)
        self._most_fields = MOST_FIELDS_OF_A_PIECE if is_stream else MOST_FIELDS
        self._kind = getattr(getattr(decode, "__self__", None), "DESCRIPTOR", None)
        self.is_large = name in LARGE_BYTES and not is_stream

    async def only(
        self, raw: AsyncIterable[bytes], call: Call, require_still: Callable[[], None] = lambda: None
    ) -> Any:
        """Return the request of a method that takes one.

        Args:
            require_still: Called before a request that was slow to arrive is decoded; raises if its caller may not any more.

        Raises:
            MalformedRequest: There is none, it is too large, or the bytes are no message.
            TransferIdle: It does not arrive.
        """
        begin = time.monotonic()
        try:
            async with asyncio.timeout(self._idle_s):
                data = await anext(aiter(raw), None)
        except TimeoutError as error:
            raise TransferIdle(f"the request does not arrive within {self._idle_s:g} s") from error
        if data is None:
            raise MalformedRequest("the call has no request")
        self._received()
        call.received(data)
        if time.monotonic() - begin > SLOW_S:
            require_still()
        self._require_size(data)
        if len(data) <= ON_LOOP_BYTES:
            message = self._checked(data)
        else:
            message = await asyncio.to_thread(self._checked, data)
        call.decoded(message)
        return message

    async def each(self, raw: AsyncIterable[bytes], call: Call) -> AsyncGenerator[Any, None]:
        """Return the messages of a stream, each decoded when it is asked for."""
        async for data in raw:
            self._received()
            call.received(data)
            self._require_size(data)
            message = self._checked(data)
            del data  # whoever waits with a piece of a blob holds it once
            call.decoded(message)
            yield message

    def _require_size(self, data: bytes) -> None:
        if self._most_bytes is not None and len(data) > self._most_bytes:
            raise MalformedRequest(f"a message of this call has at most {self._most_bytes} bytes")

    def _checked(self, data: bytes) -> Any:
        require_few_fields(data, self._kind, self._most_fields)
        try:
            return self._decode(data)
        except DecodeError as error:
            raise MalformedRequest("the bytes are not a message of this call") from error


class RawRequests:
    """Bytes of a call's messages, each given away as it is read: gRPC's own generator keeps the last one, in a circle."""

    def __init__(self, context: Any) -> None:
        self._read = context.read

    def __aiter__(self) -> RawRequests:
        return self

    async def __anext__(self) -> bytes:
        data = await self._read()
        if data is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs are older
            raise StopAsyncIteration
        return cast("bytes", data)
