"""Bodies that are longer than a connection: a run's events and a download go on where the connection broke."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import cast

import httpx
from httpx_sse import EventSource

from fedplcc.gateway_client.answers import error_of, parsed
from fedplcc.gateway_client.transport import ATTEMPTS, Transport, without_end
from fedplcc.shared.documents import Event, Run
from fedplcc.shared.errors import Unavailable
from fedplcc.shared.types import BlobRef

SILENCE_S = 45.0
"""Silence after which an event stream counts as broken; the gateway sends a comment every 15 s."""
MAX_EVENT = 64 << 20
"""Most characters between two events: a run's document in the last one, and comments of months."""
PATIENCE_S = 300.0
"""Longest absence of a gateway before `follow` gives up."""


class _Measured:
    """An answer whose events are bounded, in the form that `EventSource` reads."""

    def __init__(self, answer: httpx.Response) -> None:
        self.headers, self._answer, self.since_event = answer.headers, answer, 0

    async def aiter_text(self) -> AsyncIterator[str]:
        async for text in self._answer.aiter_text():
            self.since_event += len(text)
            if self.since_event > MAX_EVENT:
                raise without_end(self._answer)
            yield text


async def follow(
    transport: Transport, path: str, after: int, on_trouble: Callable[[str], None]
) -> AsyncGenerator[Event | Run, None]:
    """Yield the events after a sequence, each once and in order; then the run, when it has ended.

    Raises:
        FedplccError: The gateway refuses; or it was not there at first, or was away for longer than `PATIENCE_S`.
    """
    clock = asyncio.get_running_loop().time
    failures, last_sign, has_answered = 0, clock(), False
    while True:
        try:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            async with transport.stream(path, headers=headers, silence_s=SILENCE_S) as answer:
                has_answered, failures, last_sign = True, 0, clock()
                on_trouble("")
                measured = _Measured(answer)
                async for item in EventSource(cast(httpx.Response, measured)).aiter_sse():
                    measured.since_event = 0
                    if not item.data:
                        continue  # by the standard a frame without data is no event; the library yields it
                    last_sign = clock()
                    if item.event == "problem":
                        raise error_of(item.data, answer)
                    if item.event == "end":
                        yield parsed(Run, item.data)
                        return
                    event = parsed(Event, item.data)
                    after = event.sequence
                    yield event
            why = f"the gateway at {transport.url} ended the stream of events"
        except Unavailable as error:
            if not has_answered or clock() - last_sign > PATIENCE_S:
                raise
            why = error.detail
        on_trouble(why)
        failures += 1
        await transport.pause(failures)


async def download(transport: Transport, path: str, number: int, blob: BlobRef) -> AsyncIterator[bytes]:
    """Yield the pieces of a round's blob; who takes them checks their SHA-256.

    Raises:
        Unavailable: The gateway is away for longer than a few attempts, or has another blob there now.
    """
    received, failures = 0, 0
    while received < blob.size_bytes:
        headers = {"Range": f"bytes={received}-", "If-Range": f'"{blob.sha256}"'} if received else {}
        before = received
        try:
            async with transport.stream(path, params={"round": number}, headers=headers) as answer:
                if received and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                    raise Unavailable(f"the {blob.role} changed while it was being downloaded; try again")
                async for piece in answer.aiter_bytes():
                    received += len(piece)
                    if received > blob.size_bytes:
                        raise without_end(answer)
                    yield piece
            if received < blob.size_bytes:
                raise Unavailable(f"the {blob.role} ended at byte {received} of {blob.size_bytes}")
        except Unavailable:
            failures = 1 if received > before else failures + 1
            if failures >= ATTEMPTS:
                raise
            await transport.pause(failures)
