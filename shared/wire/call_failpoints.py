"""Failpoints of RPCs, on both ends; only an armed process has them.

    aggregator.rpc.CommitUpdate.before      the request has arrived
    aggregator.rpc.CommitUpdate.after       the handler has finished, its answer is not sent yet
    trainer.rpc.CommitUpdate.before         the call is about to start
    trainer.rpc.CommitUpdate.after          the answer has arrived, the caller has not seen it yet

Each message of a stream passes `.received.before` and `.received.after` (processed, the next one is requested), or
`.sent.before` and `.sent.after` (handed to gRPC).
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Self

import grpc

from fedplcc.shared.process.failpoints import failpoint, is_armed

SERVER_SIDE = "aggregator.rpc"
"""Prefix on the server; only the aggregator is one."""


@functools.cache
def step_of(side: str, method: str | bytes) -> str:
    """Return the prefix of a method's failpoints: "trainer.rpc.Join" for side "trainer.rpc" and ".../Join"."""
    path = method.decode() if isinstance(method, bytes) else method
    return f"{side}.{path.rpartition('/')[2]}"


def with_failpoints(method: str, request: Any, *, is_stream: bool) -> Any:
    """Return a received request unchanged; in an armed process, a stream with failpoints around each message."""
    return _received(request, step_of(SERVER_SIDE, method)) if is_stream and is_armed() else request


async def _received(messages: AsyncIterator[Any], step: str) -> AsyncIterator[Any]:
    async for message in messages:
        failpoint(step, "received.before")
        yield message
        failpoint(step, "received.after")


class CallFailpoints(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # generic in the stubs only
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
):
    """Client interceptor with failpoints around every call of a synchronous channel."""

    def __init__(self, side: str) -> None:
        self._side = side

    def intercept_unary_unary(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Pass `before`, then `after` when the answer has arrived."""
        return self._until_answered(continuation, client_call_details, request)

    def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Iterable[Any]
    ) -> Any:
        """Pass the failpoints of the call and of each sent message."""
        step = step_of(self._side, client_call_details.method)
        return self._until_answered(continuation, client_call_details, _sent(request_iterator, step))

    def intercept_unary_stream(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        """Pass the failpoints of the call and of each received message."""
        step = step_of(self._side, client_call_details.method)
        failpoint(step, "before")
        return _Answers(continuation(client_call_details, request), step)

    def _until_answered(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        step = step_of(self._side, details.method)
        failpoint(step, "before")
        call = continuation(details, request)

        def answered(ended: Any) -> None:
            if ended.code() is grpc.StatusCode.OK:
                failpoint(step, "after")

        call.add_done_callback(answered)
        return call


def _sent(messages: Iterable[Any], step: str) -> Iterator[Any]:
    for message in messages:
        failpoint(step, "sent.before")
        yield message
        failpoint(step, "sent.after")


class _Answers:
    """Caller's view of a call with a streamed answer; passes failpoints around each message."""

    def __init__(self, call: Any, step: str) -> None:
        self._call, self._step, self._has_received = call, step, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._has_received:
            failpoint(self._step, "received.after")
            self._has_received = False
        try:
            message = next(self._call)
        except StopIteration:
            failpoint(self._step, "after")
            raise
        failpoint(self._step, "received.before")
        self._has_received = True
        return message
