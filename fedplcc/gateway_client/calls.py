"""Calls of the client: how a method becomes a request and an answer a document."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Coroutine, Mapping
from types import NoneType, TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from fedplcc.remote.rest_client import Gateway as Rest
from fedplcc.shared.documents.document import Document
from fedplcc.shared.errors import Internal

Answer = TypeVar("Answer")


class AsyncCalls:
    """Calls as coroutines, over one pool of connections."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

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
        content: bytes | None = None,
    ) -> Answer:
        """Make a call, again where it failed for a reason that passes, and return its answer as `kind`.

        Raises:
            FedplccError: The gateway refuses, by the reason of its problem document.
            Unavailable: It does not answer.
        """
        headers = {name: str(value) for name, value in _given(header).items()}
        if header is not None and "Idempotency-Key" in header:
            headers.setdefault("Idempotency-Key", uuid.uuid4().hex)
        parts: dict[str, Any] = {
            "params": _given(query),
            "headers": {"Accept": "application/json, */*;q=0.5", **headers},
        }
        if body is not None:
            given = _given(body)
            if given:
                parts["json"] = given
        if content is not None:
            parts["headers"] |= {"Content-Type": "application/octet-stream", "Content-Length": str(len(content))}
            parts["data"] = content
        answer = await self._rest.request(method, path, **parts)
        read: Answer = _read(kind, answer.content)
        return read


class Calls:
    """Calls of plain code: each waits for a coroutine on an event loop of its own thread."""

    def __init__(self, there: AsyncCalls) -> None:
        self._there = there
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway client", daemon=True)
        self._thread.start()

    quoted = staticmethod(AsyncCalls.quoted)

    def call(self, method: str, path: str, kind: type[Answer], **parts: Any) -> Answer:
        """Make a call; see `AsyncCalls.call`."""
        return self.wait_for(self._there.call(method, path, kind, **parts))

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
            self.wait_for(self._there._rest.__aexit__(None, None, None))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _read(kind: Any, content: bytes) -> Any:
    try:
        if kind is NoneType:
            return None
        if kind is bytes:
            return content
        if kind is str:
            return content.decode()
        if kind is list:
            return [json.loads(line) for line in content.splitlines()]
        if kind is dict:
            return json.loads(content)
        assert issubclass(kind, Document)
        return kind.model_validate_json(content)
    except ValueError as error:
        raise Internal("what answered is no fedplcc gateway, or one of another version") from error
