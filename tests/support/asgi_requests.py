"""Requests past the HTTP server, which would refuse some of them by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

ANSWER_S = 60.0


async def status_of(
    app: Any,
    method: str,
    path: str,
    headers: Mapping[str, str | bytes],
    body: bytes = b"",
    *,
    address: str = "127.0.0.1",
    is_whole: bool = True,
    waits: asyncio.Event | None = None,
) -> int:
    """Return the status of the answer; a body that is not whole does not go on, and the event says that it is waited for."""
    pieces = [{"type": "http.request", "body": body, "more_body": not is_whole}]
    statuses: list[int] = []

    async def receive() -> Any:
        if not pieces:
            if waits is not None:
                waits.set()
            await asyncio.Event().wait()
        return pieces.pop()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [
            (name.encode(), text.encode() if isinstance(text, str) else text) for name, text in headers.items()
        ],
        "client": (address, 1),
        "server": ("127.0.0.1", 1),
        "state": {},
    }
    async with asyncio.timeout(ANSWER_S):
        await app(scope, receive, send)
    return statuses[0]
