"""Calls of the client: how a method becomes a request and an answer a document."""

from __future__ import annotations

import asyncio
import functools
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import quote

from fedplcc.gateway_client.answers import read
from fedplcc.gateway_client.transport import Transport
from fedplcc.runs.initial_model import PIECE_BYTES

Answer = TypeVar("Answer")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file as the body of a request; a second attempt reads it again.

    Attributes:
        path: The file.
        size_bytes: Its size.
        on_bytes: Called with the number of bytes of each sent piece.
    """

    path: Path
    size_bytes: int
    on_bytes: Callable[[int], None]

    def __len__(self) -> int:
        return self.size_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with self.path.open("rb") as source:
            while piece := source.read(PIECE_BYTES):
                yield piece
                self.on_bytes(len(piece))


Content = bytes | SentFile


class AsyncCalls:
    """Calls as coroutines, over one pool of connections."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @staticmethod
    def quoted(value: object) -> str:
        """Return a value as one part of a path."""
        return quote(str(value), safe="")

    async def call(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        *,
        query: Mapping[str, Any] | None = None,
        header: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        content: Content | None = None,
    ) -> Answer:
        """Make a call, again where it failed for a reason that passes, and return its answer as `kind`.

        All attempts have one request id, a random one if none is given, so that a delayed attempt that arrives after a newer
        request changes nothing.

        Raises:
            FedplccError: The gateway refuses, by the reason of its problem document.
            Unavailable: It does not answer.
        """
        headers = {"Accept": "application/json, */*;q=0.5"}
        headers |= {name: str(value) for name, value in _given(header).items()}
        if header is not None and "Idempotency-Key" in header:
            headers.setdefault("Idempotency-Key", uuid.uuid4().hex)
        parts: dict[str, Any] = {"params": _given(query), "headers": headers}
        if given := _given(body):
            parts["json"] = given
        if content is not None:
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(len(content))}
            parts |= {"content": content, "sent_bytes": len(content)}
        answer: Answer = read(kind, await self._transport.request(method, path, **parts))
        return answer


class Calls:
    """Calls of plain code: each waits for a coroutine on an event loop of its own thread."""

    def __init__(self, there: AsyncCalls) -> None:
        self._there = there
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway client", daemon=True)
        self._thread.start()

    def wait_for(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Return what a coroutine returns; Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connections; the client cannot be used any more."""
        if not self._loop.is_closed():
            self.wait_for(self._there._transport.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def waited(
    operation: Callable[Concatenate[Any, P], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[Calls, P], Answer]:
    """Return a coroutine's method as one of plain code."""

    @functools.wraps(operation)
    def plain(calls: Calls, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return calls.wait_for(operation(calls._there, *args, **kwargs))

    return plain


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}
