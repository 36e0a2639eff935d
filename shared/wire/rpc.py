"""gRPC once for all processes: servers and channels that agree, errors to statuses and back, backoff.

A servicer raises errors of shared/errors.py and nothing else knows gRPC's codes: the server's interceptor turns an error
into a status with google.rpc.ErrorInfo (domain "fedplcc"), `translate` turns that status into the same error on the other
side. What nobody foresaw becomes INTERNAL with a fixed sentence; the traceback stays in the log of the process that failed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from shared.errors import (
    AggregatorUnavailable,
    FailedPrecondition,
    FedplccError,
    Internal,
    InvalidConfig,
    MalformedRequest,
    ResourceExhausted,
    TransferIdle,
    Unavailable,
    from_reason,
)
from shared.process.failpoints import failpoint, is_armed, passing
from shared.process.log import get_logger
from shared.version import VERSION
from shared.wire.addresses import is_loopback, join_address, require_secure, split_address
from shared.wire.call_failpoints import SERVER_SIDE, CallFailpoints, arriving, step_of
from shared.wire.call_logs import Call, level_of
from shared.wire.call_observer import CallObserver

ERROR_DOMAIN = "fedplcc"
"""Domain of ErrorInfo; its reasons are those of shared/errors.py."""
PACKAGE = "/fedplcc."
"""How the methods of our services begin; others (health, reflection) are left alone."""
INTERNAL_TEXT = "internal error; the log of the process that answered says more"
"""All that a peer learns of a bug."""
MAX_DETAIL = 1000
"""Most characters of an error's sentence, and of each of its facts, on the wire; statuses travel in headers, which are
limited, and a fact may be a name that the peer made up.
"""
IDLE_S = 60.0
"""How long the other end of a transfer, or of an open stream, may send or read nothing."""
STATUS_S = 5.0
"""How long a call is held for its status to leave; it waits behind what the peer has not read."""
MAX_MESSAGE_BYTES = 5 << 20
"""Largest message: a chunk of up to 4 MiB, or a run's configuration and record, with room around it."""

KEEPALIVE_S = 30.0
"""How long a connection may be silent before the other end is asked for a sign of life; twice as long without one, and it
counts as dead and its calls fail. On a slow link the question and the answer wait behind what is on its way."""


def _keepalive(seconds: float) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.keepalive_time_ms", round(1000 * seconds)),
        ("grpc.keepalive_timeout_ms", round(2000 * seconds)),
        ("grpc.http2.ping_timeout_ms", round(2000 * seconds)),  # a minute otherwise, whatever the line above says
        # Of a server: clients ask also without calls; without this it answers ENHANCE_YOUR_CALM.
        ("grpc.http2.min_ping_interval_without_data_ms", round(1000 * min(seconds, KEEPALIVE_S) / 3)),
    )


_COMMON_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 32 << 10),
    ("grpc.absolute_max_metadata_size", 64 << 10),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
SERVER_OPTIONS = (
    *_COMMON_OPTIONS,
    *_keepalive(KEEPALIVE_S),
    # Otherwise a second server on the same port starts without a complaint and takes half of the calls.
    ("grpc.so_reuseport", 0),
)
CHANNEL_OPTIONS = (
    *_COMMON_OPTIONS,
    *_keepalive(KEEPALIVE_S),
    ("grpc.enable_http_proxy", 0),
    # One connection per channel: channels to one address would otherwise share one, and its flow control.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Calls are retried in one place, by their callers.
    ("grpc.enable_retries", 0),
)


def _kept_alive(options: Sequence[tuple[str, int]], keepalive_s: float) -> list[tuple[str, int]]:
    """The options with another keepalive, none of them twice."""
    return list({**dict(options), **dict(_keepalive(keepalive_s))}.items())


def open_channel(
    address: str, *, insecure: bool = False, failpoints: str = "", keepalive_s: float = KEEPALIVE_S
) -> grpc.Channel:
    """A channel for threads to HOST:PORT; connects when first used.

    Args:
        address: HOST:PORT.
        insecure: Whether plain text is accepted off loopback.
        failpoints: What the names of its calls' failpoints begin with, in a process that a test has armed.
        keepalive_s: Silence after which the other end is asked for a sign of life.

    Raises:
        InvalidConfig: No such address, or off loopback without `insecure`.
    """
    channel = grpc.insecure_channel(_target(address, insecure), options=_kept_alive(CHANNEL_OPTIONS, keepalive_s))
    return grpc.intercept_channel(channel, CallFailpoints(failpoints)) if failpoints and is_armed() else channel


def open_aio_channel(address: str, *, insecure: bool = False, keepalive_s: float = KEEPALIVE_S) -> grpc.aio.Channel:
    """A channel for asyncio to HOST:PORT; connects when first used.

    Raises:
        InvalidConfig: No such address, or off loopback without `insecure`.
    """
    return grpc.aio.insecure_channel(_target(address, insecure), options=_kept_alive(CHANNEL_OPTIONS, keepalive_s))


def _target(address: str, insecure: bool) -> str:
    host, port = split_address(address)
    require_secure(host, insecure=insecure, what=f"the aggregator at {address}")
    return join_address(host, port)


_KINDS = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
"""How calls are told apart, by whether the request and the answer are streams."""


class RpcServer:
    """A grpc.aio server with the error mapping, health and, on loopback only, reflection."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        insecure: bool = False,
        observer: CallObserver | None = None,
        quiet: Sequence[str] = (),
        keepalive_s: float = KEEPALIVE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """Prepare a server.

        Args:
            host: Address to listen at.
            port: Port; 0 takes any free one.
            insecure: Whether plain text is accepted off loopback.
            observer: Told of every call of our services.
            quiet: Last parts of methods whose successes are logged at level debug.
            keepalive_s: Silence after which the other end of a connection is asked for a sign of life.
            idle_s: How long the reader of a stream may read nothing.

        Raises:
            InvalidConfig: Off loopback without `insecure`.
        """
        require_secure(host, insecure=insecure, what=f"serving at {host}")
        self._host, self._port = host, port
        self._names: list[str] = []
        self._observer = observer or CallObserver()
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs are older
        self._server = grpc.aio.server(
            interceptors=[ErrorInterceptor(observer=self._observer, quiet=quiet, idle_s=idle_s)],
            options=_kept_alive(SERVER_OPTIONS, keepalive_s),
        )

    def add(self, register: Callable[[Any, Any], None], servicer: object, service: Any) -> None:
        """Serve a service: `register` is the generated `add_XServicer_to_server`, `service` its descriptor."""
        register(servicer, self._server)
        self._names.append(service.full_name)
        for method in service.methods:
            kind = _KINDS[method.client_streaming, method.server_streaming]
            self._observer.serves(f"/{service.full_name}/{method.name}", kind)

    async def start(self) -> int:
        """Listen, serve and report healthy; returns the port.

        Raises:
            InvalidConfig: The port is taken, or the address is not of this machine.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if is_loopback(self._host):
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            reflection.enable_server_reflection(names, self._server)
        where = join_address(self._host, self._port)
        try:
            port = self._server.add_insecure_port(where)
        except RuntimeError:
            port = 0
        if not port:
            raise InvalidConfig(f"cannot listen at {where}: the port is taken or the address is not of this machine")
        await self._server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._port = port
        return port

    async def announce_stop(self) -> None:
        """Report unhealthy, so that nobody new is sent here."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give those that run `grace_s` seconds, then end them."""
        await self.announce_stop()
        await self._server.stop(grace_s)


_In = TypeVar("_In")
_Out = TypeVar("_Out")

VERSION_KEY = "fedplcc-version"
"""Trailing metadata of every unary answer: the version that gave it, for `fedplcc doctor`."""


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Around every call of our services: errors become statuses, one log line is written, an observer is told."""

    def __init__(
        self,
        *,
        observer: CallObserver | None = None,
        quiet: Sequence[str] = (),
        idle_s: float = IDLE_S,
    ) -> None:
        self._observer, self._quiet, self._idle_s = observer or CallObserver(), frozenset(quiet), idle_s
        self._log = get_logger("rpc")

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the method's handler."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if not method.startswith(PACKAGE):
            return handler
        if handler is None:
            unknown = FailedPrecondition("this version has no such method")
            self._write_line(Call(method), grpc.StatusCode.UNIMPLEMENTED.name, unknown, 0.0)
            return None
        call = Call(
            method,
            is_request_stream=handler.request_streaming,
            is_response_stream=handler.response_streaming,
            metadata=handler_call_details.invocation_metadata,
        )
        encode = _telling(self._observer.sent_message, method, call.encoder(handler.response_serializer))
        decoder = _decoder(handler.request_deserializer, is_stream=handler.request_streaming)
        decode = _telling(self._observer.received_message, method, call.decoder(decoder))
        behaviour = next(
            found
            for found in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
            if found is not None
        )

        step = step_of(SERVER_SIDE, method)

        async def answer(request: Any, context: Any) -> bytes:
            context.set_trailing_metadata(((VERSION_KEY, VERSION),))  # an error's own replaces it
            async with self._around(call, context):
                _require_decoded(request)
                with passing(step):
                    arrived = arriving(method, request, is_stream=handler.request_streaming)
                    response = await behaviour(arrived, context)
                # Here and not by gRPC, which would do it when the line about the call is written.
                return encode(response)

        async def stream(request: Any, context: Any) -> None:
            async with self._around(call, context):
                _require_decoded(request)
                with passing(step):
                    arrived = arriving(method, request, is_stream=handler.request_streaming)
                    # Closed here and not when it is forgotten: what it holds is let go of with the call.
                    async with aclosing(behaviour(arrived, context)) as responses:
                        async for response in responses:
                            failpoint(step, "sent.before")
                            await self._write(context, response)
                            failpoint(step, "sent.after")

        make: Callable[..., Any] = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        return make(
            stream if handler.response_streaming else answer,
            request_deserializer=decode,
            response_serializer=encode if handler.response_streaming else None,
        )

    async def _write(self, context: Any, response: Any) -> None:
        """Send one message of a stream, within a limit: a yield of the handler would wait for its reader without end."""
        try:
            async with asyncio.timeout(self._idle_s):
                await context.write(response)
        except TimeoutError as error:
            raise TransferIdle(f"the other end reads nothing for {self._idle_s:g} s") from error

    @asynccontextmanager
    async def _around(self, call: Call, context: Any) -> AsyncIterator[None]:
        self._observer.begun(call.method)
        call.came_from(context.peer())
        begin = time.perf_counter()
        code, error = "OK", None
        try:
            try:
                yield
            except FedplccError as raised:
                code, error = raised.code.name, raised
                await abort(context, raised)
            except (asyncio.CancelledError, GeneratorExit):
                code = "CANCELLED"
                raise
            except grpc.aio.AbortError:
                raise
            except Exception as raised:
                if context.cancelled():
                    code = "CANCELLED"
                    raise
                code, error = "INTERNAL", Internal(INTERNAL_TEXT)
                self._log.exception("rpc_crashed", method=call.method, error=type(raised).__name__)
                await abort(context, error)
        finally:
            seconds = time.perf_counter() - begin
            self._write_line(call, code, error, seconds)
            self._observer.ended(call.method, code, seconds)

    def _write_line(self, call: Call, code: str, error: FedplccError | None, seconds: float) -> None:
        level = level_of(error, is_quiet=call.method.rpartition("/")[2] in self._quiet)
        self._log.log(level, "rpc", **call.line(code, error, seconds))


def _telling(tell: Callable[[str], None], method: str, convert: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
    """The function, with somebody told of the method each time that it is called."""

    def told(message: _In) -> _Out:
        tell(method)
        return convert(message)

    return told


def _decoder(decode: Callable[[bytes], Any], *, is_stream: bool) -> Callable[[bytes], Any]:
    """Read a message, where bytes that are none are the sender's mistake and no bug of ours.

    gRPC reads a stream's messages when the handler asks for them, and so within `_around`; a single one before there is a
    handler, where an exception would be UNKNOWN to the caller and a stack trace in the log. That one is handed on instead.
    """

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            refusal = MalformedRequest("the bytes are not a message of this call")
            if is_stream:
                raise refusal from error
            return refusal

    return decoded


def _require_decoded(request: Any) -> None:
    if isinstance(request, MalformedRequest):
        raise request


async def abort(context: Any, error: FedplccError) -> None:
    """End a call of a grpc.aio servicer with the status that stands for an error; raises always.

    Raises:
        grpc.aio.AbortError: The status is on its way.
        asyncio.CancelledError: The peer reads nothing. gRPC keeps the status for when it does; the call is let go of.
    """
    status = rpc_status.to_status(to_status(error))
    try:
        async with asyncio.timeout(STATUS_S):
            await context.abort(status.code, status.details, status.trailing_metadata)
    except TimeoutError:
        raise asyncio.CancelledError from error


def to_status(error: FedplccError) -> Status:
    """The status that stands for an error."""
    metadata = {name: value[:MAX_DETAIL] for name, value in error.metadata.items()}
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN, metadata=metadata)
    packed = AnyMessage()
    packed.Pack(info)
    return Status(code=int(error.code), message=error.detail[:MAX_DETAIL], details=[packed])


def translate(error: grpc.RpcError, address: str = "") -> FedplccError:
    """The error that a peer raised, or what a transport's failure means.

    Args:
        error: Of a synchronous or an asyncio call.
        address: Of the peer, for the sentence.
    """
    call: Any = error
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # the peer contradicts itself
        status = None
    for detail in status.details if status is not None else ():
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
            facts = {key: value for key, value in info.metadata.items() if key not in ("self", "detail")}
            return from_reason(info.reason, status.message, facts, status.code)
    return _transport_failure(call.code(), call.details() or "", f" at {address}" if address else "")


def _transport_failure(code: grpc.StatusCode, details: str, where: str) -> FedplccError:
    if code is grpc.StatusCode.UNAVAILABLE:
        return AggregatorUnavailable(f"no aggregator answers{where}")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"the aggregator{where} did not answer in time")
    if code is grpc.StatusCode.CANCELLED:
        return Unavailable(f"the call to the aggregator{where} was cancelled")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ResourceExhausted(f"a message is over the limit: {details}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return FailedPrecondition(f"the server{where} is no aggregator, or one of another version")
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        # Our own bugs come with ErrorInfo; without it a connection broke within a message.
        return Unavailable(f"the connection to the aggregator{where} broke: {details}")
    return Internal(f"the server{where} answered {code.name}: {details}")


@contextmanager
def translated(address: str = "") -> Iterator[None]:
    """Within the block, gRPC's errors become ours; for synchronous and awaited calls alike."""
    try:
        yield
    except grpc.RpcError as error:
        raise translate(error, address) from error


def backoff(rng: random.Random, *, first_s: float = 0.2, most_s: float = 5.0) -> Iterator[float]:
    """Yield seconds to wait before each further attempt, without end.

    The n-th lies between half and all of `first_s` * 2^n, bounded by `most_s`: the random half keeps many trainers that lost
    the same aggregator from coming back at the same moment.
    """
    limit = first_s
    while True:
        yield limit * rng.uniform(0.5, 1.0)
        limit = min(2 * limit, most_s)
