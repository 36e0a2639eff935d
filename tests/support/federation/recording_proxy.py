"""A proxy in front of an aggregator in plain text that keeps the bytes of every request of RoundService as they arrived."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import grpc
from google.protobuf.message_factory import GetMessageClass

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2
from fedplcc.shared.wire.channels import CHANNEL_OPTIONS, SERVER_OPTIONS

(SERVICE,) = round_service_pb2.DESCRIPTOR.services_by_name.values()
STREAMED = ("UploadModel", "UploadPrototypes")
ANSWERED_BY_STREAMS = ("SyncRound", "DownloadBlob")


class Received(NamedTuple):
    """A message that arrived."""

    method: str
    data: bytes
    call: int
    """Number of the call that it came with."""

    @property
    def message(self) -> Any:
        """It, parsed."""
        return GetMessageClass(SERVICE.methods_by_name[self.method].input_type).FromString(self.data)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def sender(self) -> str:
        """Id of the client; empty for the chunks of uploads, which name nobody."""
        message = self.message
        return str(message.header.client_id if hasattr(message, "header") else message.client_id)


class RecordingProxy(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Listens at `address` within a `with` block; `received` has every message, in the order of arrival."""

    def __init__(self, target: str) -> None:
        self.received: list[Received] = []
        self.arrived: Callable[[Received], None] = lambda received: None
        """Called, by any thread, with each message before it goes on to the aggregator."""
        self._calls = itertools.count()
        self._channel: Any = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._pool = ThreadPoolExecutor(32)
        self._server = grpc.server(self._pool, handlers=[self], options=SERVER_OPTIONS)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._channel.close()
        self._server.stop(0).wait()
        self._pool.shutdown()

    def of(self, client_id: str) -> list[Received]:
        """What this client sent, but for the chunks of its uploads."""
        return [each for each in list(self.received) if each.sender == client_id]

    def uploaded(self, client_id: str) -> set[tuple[str, int]]:
        """SHA-256 and size of what this client uploaded, put together of its chunks: whole blobs, unless one broke off."""
        pieces: dict[str, dict[int, bytes]] = defaultdict(dict)
        headers: dict[int, Any] = {}
        for each in list(self.received):
            if each.method not in STREAMED:
                continue
            if each.message.WhichOneof("part") == "header":
                headers[each.call] = each.message.header
            elif headers[each.call].client_id == client_id:
                chunk = each.message.chunk
                pieces[headers[each.call].blob.sha256][chunk.offset_bytes] = chunk.data
        blobs = (b"".join(data for _, data in sorted(found.items())) for found in pieces.values())
        return {(hashlib.sha256(data).hexdigest(), len(data)) for data in blobs}

    def service(self, handler_call_details: Any) -> Any:
        """The handler of a method."""
        path = handler_call_details.method
        method = path.rpartition("/")[2]
        if method in STREAMED:
            return grpc.stream_unary_rpc_method_handler(self._answered(self._channel.stream_unary(path), method))
        if method in ANSWERED_BY_STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._streamed(self._channel.unary_stream(path), method))
        return grpc.unary_unary_rpc_method_handler(self._answered(self._channel.unary_unary(path), method))

    def _kept(self, method: str, data: bytes, call: int) -> bytes:
        received = Received(method, data, call)
        self.received.append(received)
        self.arrived(received)
        return data

    def _answered(self, send: Any, method: str) -> Callable[..., Any]:
        def answer(request: Any, context: Any) -> bytes:
            call = next(self._calls)
            given: Iterable[bytes] | bytes = (
                self._kept(method, request, call)
                if isinstance(request, bytes)
                else (self._kept(method, data, call) for data in request)
            )
            try:
                answered: bytes = send.future(given).result()
            except grpc.RpcError as error:
                _refuse(context, error)
                raise
            return answered

        return answer

    def _streamed(self, send: Any, method: str) -> Callable[..., Any]:
        def answers(request: bytes, context: Any) -> Iterator[bytes]:
            call = send(self._kept(method, request, next(self._calls)))
            context.add_callback(call.cancel)
            try:
                yield from call
            except grpc.RpcError as error:
                _refuse(context, error)

        return answers


def _refuse(context: Any, error: Any) -> None:
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details())
