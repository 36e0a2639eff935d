"""Server interceptor: turns errors into statuses, writes log lines about calls, reports calls to an observer.

An exception that is not of shared/errors.py becomes INTERNAL with a fixed sentence; its traceback stays in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio

from fedplcc.shared.errors import FailedPrecondition, FedplccError, Internal, KeyInvalid, TransferIdle, Unauthenticated
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.process import traces
from fedplcc.shared.process.failpoints import failpoint, passing
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.repeated_lines import CRASHES, RepeatedLines
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.call_failpoints import SERVER_SIDE, step_of, with_failpoints
from fedplcc.shared.wire.call_logs import Call, expect_callers_to_leave, is_of_a_caller_that_left, level_of
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.channels import IDLE_S
from fedplcc.shared.wire.peer_versions import check_version
from fedplcc.shared.wire.serving.caller import NOTED, Callers
from fedplcc.shared.wire.serving.connections import Connection, Connections
from fedplcc.shared.wire.serving.places import Places
from fedplcc.shared.wire.serving.requests import RawRequests, Requests
from fedplcc.shared.wire.statuses import abort

PACKAGE = "/fedplcc."
"""Prefix of the methods of our services; others (health, reflection) are left alone."""
INTERNAL_TEXT = "internal error; the log of the process that answered says more"
"""Public sentence for a bug."""
_NO_PLACE = nullcontext()
LARGE_AT_ONCE, LARGE_WAITING = 2, 64
"""Calls with a large request of one caller that go on at once, and that may wait for them without being read."""
VERSION_KEY = "fedplcc-version"
"""Key in the trailing metadata of every unary answer: the answering process's version, for `fedplcc doctor`."""

_lines = logging.getLogger("rpc")

_Out = TypeVar("_Out")


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Interceptor of every call of our services; see the module."""

    def __init__(
        self,
        *,
        observer: CallObserver | None = None,
        quiet: Sequence[str] = (),
        idle_s: float = IDLE_S,
        callers: Callers | None = None,
        connections: Connections | None = None,
    ) -> None:
        self._observer, self._quiet, self._idle_s = observer or CallObserver(), frozenset(quiet), idle_s
        self._callers, self._connections = callers or Callers(None), connections or Connections()
        self._log = get_logger(_lines.name)
        self._repeated = RepeatedLines(self._log)
        self._handlers: dict[str, Any] = {}
        """Wrapped handlers by method."""
        self._large = Places(LARGE_AT_ONCE, LARGE_WAITING, "calls with large requests")
        expect_callers_to_leave()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the method's wrapped handler."""
        method = handler_call_details.method
        known = self._handlers.get(method)
        if known is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return self._unknown(method)  # not kept: a stranger names as many as it likes
            wrap = self._wrapped if method.startswith(PACKAGE) else self._other
            known = self._handlers[method] = wrap(method, handler)
        return known

    def _wrapped(self, method: str, handler: Any) -> Any:
        """Return a handler of one of our methods, for all its calls."""
        is_stream, serialize = handler.request_streaming, handler.response_serializer
        requests = Requests(
            method.rpartition("/")[2],
            handler.request_deserializer,
            is_stream=is_stream,
            idle_s=self._idle_s,
            received=partial(self._observer.received_message, method),
        )
        behaviour = next(
            found
            for found in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
            if found is not None
        )
        step = step_of(SERVER_SIDE, method)

        def begun(context: Any) -> Call:
            return Call(
                method,
                is_request_stream=is_stream,
                is_response_stream=handler.response_streaming,
                metadata=context.invocation_metadata(),
            )

        def encoded(call: Call, response: Any) -> bytes:
            self._observer.sent_message(method)
            data: bytes = serialize(response)
            call.sent(response, data)
            return data

        async def answer(_generator: object, context: Any) -> bytes:
            call, raw = begun(context), RawRequests(context)
            context.set_trailing_metadata(((VERSION_KEY, VERSION),))  # an error's metadata replaces it
            async with self._around(call, context), self._place(call, context, requests):
                still = partial(self._callers.require_still, call, context)
                request = requests.each(raw, call) if is_stream else await requests.only(raw, call, still)
                with passing(step):
                    response = await behaviour(with_failpoints(method, request, is_stream=is_stream), context)
                # Encoded here: gRPC would encode after the log line of the call is written.
                return encoded(call, response)

        async def stream(_generator: object, context: Any) -> None:
            call, raw = begun(context), RawRequests(context)
            async with self._around(call, context):
                request = requests.each(raw, call) if is_stream else await requests.only(raw, call)
                with passing(step):
                    arrived = with_failpoints(method, request, is_stream=is_stream)
                    # Closed with the call, not by the garbage collector: the handler's resources are released at once.
                    async with aclosing(behaviour(arrived, context)) as responses:
                        async for response in responses:
                            failpoint(step, "sent.before")
                            data = encoded(call, response)
                            del response  # a reader may be slow; what waits for it are the bytes alone
                            await self._write(context, data)
                            failpoint(step, "sent.after")

        # As a stream of requests, each of which is read when it is asked for: see shared/wire/serving/requests.py.
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(_forgetting(stream))
        return grpc.stream_unary_rpc_method_handler(_forgetting(answer))

    def _place(self, call: Call, context: Any, requests: Requests) -> AbstractAsyncContextManager[None]:
        """Hold a place for a call with a large request; who waited for it is looked at again before anything is read."""
        return self._large_place(call, context) if requests.is_large else _NO_PLACE

    @asynccontextmanager
    async def _large_place(self, call: Call, context: Any) -> AsyncIterator[None]:
        async with self._large.place(current_principal.get().share):
            self._callers.require_still(call, context)
            yield

    def _unknown(self, method: str) -> Any:
        """Return what refuses a call of a method that is not there, and knows who calls; gRPC's own does not."""

        async def refuse(_requests: Any, context: Any) -> None:
            call = Call(method)
            async with self._in_vain(call, context):
                error = FailedPrecondition("this version has no such method")
                self._write_line(call, grpc.StatusCode.UNIMPLEMENTED.name, error, 0.0, subject="")
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _other(self, method: str, handler: Any) -> Any:
        """Return a handler of a service that is not ours, whose calls all count as made in vain: health, and reflection."""
        behaviour = handler.unary_unary or handler.stream_stream
        if behaviour is None:
            return handler  # health's Watch, which is refused
        decode, encode = handler.request_deserializer or bytes, handler.response_serializer or bytes

        async def answer(raw: AsyncIterator[bytes], context: Any) -> bytes:
            call = Call(method)
            async with self._in_vain(call, context), asyncio.timeout(self._idle_s):
                data = await anext(raw, b"")
                call.received(data)
                return bytes(encode(await behaviour(decode(data), context)))

        async def stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            async with self._in_vain(Call(method), context):
                async for response in behaviour(requests, context):
                    yield encode(response)

        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(answer)
        return grpc.stream_stream_rpc_method_handler(stream, handler.request_deserializer)

    @asynccontextmanager
    async def _in_vain(self, call: Call, context: Any) -> AsyncIterator[None]:
        """Count a call that nobody is admitted for, whatever comes of it."""
        connection = await self._connected(call, context)
        try:
            yield
        finally:
            self._counted(call, connection, is_unread=not call.received_messages, is_refused=call.received_messages > 0)

    async def _connected(self, call: Call, context: Any) -> Connection:
        """Return the connection of a call; one that was ended has some in line still, which are dropped."""
        call.set_peer(context.peer())
        connection = self._connections.called(call.peer)
        if connection.is_ended:
            self._connections.ended(connection)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this connection has ended")
        call.reads = partial(self._connections.read, connection.peer)
        return connection

    def _counted(
        self, call: Call, connection: Connection, *, is_unread: bool = False, is_refused: bool = False
    ) -> None:
        """Count the end of a call; who called in vain too often is told of as a refusal."""
        error = self._connections.ended(connection, is_unread=is_unread, is_refused=is_refused)
        if error is not None:
            current_principal.set(self._connections.principal_of(connection, current_principal.get()))
            self._callers.note(call, error)

    async def _write(self, context: Any, response: Any) -> None:
        """Send one message of a stream within `idle_s`; a plain `yield` would wait for the reader without a limit."""
        try:
            async with asyncio.timeout(self._idle_s):
                await context.write(response)
        except TimeoutError as error:
            raise TransferIdle(f"the other end reads nothing for {self._idle_s:g} s") from error
        except Exception as error:
            if not is_of_a_caller_that_left(error):
                raise
            raise asyncio.CancelledError from error

    @asynccontextmanager
    async def _around(self, call: Call, context: Any) -> AsyncIterator[None]:
        connection = await self._connected(call, context)
        self._observer.call_started(call.method)
        begin = time.perf_counter()
        code, error, admitted, is_let_in = "OK", None, None, False
        try:
            try:
                admitted = self._callers.admit(call, context)
                try:
                    self._connections.admitted(connection, current_principal.get())
                    is_let_in = True
                    check_version(str(call.metadata.get("user-agent", "")))
                    yield
                finally:
                    self._callers.closed(admitted)
            except FedplccError as raised:
                code, error = raised.code.name, raised
                if not is_let_in and isinstance(raised, Unauthenticated) and not isinstance(raised, KeyInvalid):
                    self._connections.refused(connection)
                await abort(context, raised)
            except (asyncio.CancelledError, GeneratorExit):
                if admitted is None or admitted.refusal is None:
                    code = "CANCELLED"
                    raise
                # Not the caller cancelled it: the certificate or key under which it was admitted has ended.
                code, error = admitted.refusal.code.name, admitted.refusal
                admitted.task.uncancel()
                await abort(context, error)
            except grpc.aio.AbortError:
                raise
            except Exception as raised:
                if context.cancelled():
                    code = "CANCELLED"
                    raise
                code, error = "INTERNAL", Internal(INTERNAL_TEXT)
                level = self._repeated.level(logging.ERROR, CRASHES, call.method, type(raised).__name__)
                self._log.log(level, "rpc_crashed", method=call.method, error=type(raised).__name__, exc_info=True)
                await abort(context, error)
        finally:
            self._callers.note(call, error)
            is_unread = code != "OK" and not call.received_messages
            self._counted(call, connection, is_unread=is_unread, is_refused=isinstance(error, NOTED))
            seconds = time.perf_counter() - begin
            self._write_line(call, code, error, seconds)
            self._observer.ended(call.method, code, seconds)

    def _write_line(
        self, call: Call, code: str, error: FedplccError | None, seconds: float, subject: str | None = None
    ) -> None:
        level = level_of(error, is_quiet=call.method.rpartition("/")[2] in self._quiet)
        if code == "OK":
            self._repeated.say_what_was_left_out()
        else:
            reason = code if error is None else error.reason
            level = self._repeated.level(level, _caller(call), call.method if subject is None else subject, reason)
        if _lines.isEnabledFor(level):
            self._log.log(level, "rpc", **call.line(code, error, seconds, current_principal.get().caller))
        if traces.is_on() and code == "OK" and level >= logging.INFO:
            call.trace(seconds)


def _forgetting(handle: Callable[[Any, Any], Awaitable[_Out]]) -> Callable[[Any, Any], Awaitable[_Out]]:
    """Return a handler whose refusals keep nothing of their calls.

    gRPC keeps the error that ends a call with the call's context. Its frames, and those of the refusal, lead back to the
    context: a circle that holds the request, megabytes of it, until a collection finds it.
    """

    async def forgetting(raw: Any, context: Any) -> _Out:
        try:
            return await handle(raw, context)
        except grpc.aio.AbortError as ended:
            if ended.__context__ is not None:
                ended.__context__.__traceback__ = None
            ended.__context__ = ended.__traceback__ = None
            raise

    return forgetting


def _caller(call: Call) -> str:
    """Return who made a call: by certificate, key or socket, else by address."""
    principal = current_principal.get()
    is_named = principal.is_owner or principal.key_id or principal.role is not None
    return principal.caller if is_named else call.peer.rpartition(":")[0]
