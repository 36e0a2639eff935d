"""Responses that are sent while they are produced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import nullcontext

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from fedplcc.gateway.http.guards.slots import Slots
from fedplcc.shared.errors import FedplccError, TransferIdle
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.channels import IDLE_S

log = get_logger("fedplcc.gateway.http.bodies.streaming")


class StreamAborted(Exception):
    """A response broke off after its start. The cause is logged; the reader sees an incomplete response."""


class Stream(StreamingResponse):
    """A response from a generator; the generator is closed with it."""

    def __init__(
        self,
        content: AsyncGenerator[str, None] | AsyncGenerator[bytes, None],
        *,
        media_type: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        places: Slots | None = None,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare a response.

        Args:
            places: Slots of which the response takes one while it is sent.
            close: Called at the end, whether or not a piece was asked for.
        """
        super().__init__(content, status, headers, media_type)
        self._content, self._places, self._close = content, places, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(IDLE_S):
                    await send(message)
            except TimeoutError as error:
                raise TransferIdle(f"the reader reads nothing for {IDLE_S:g} s") from error

        try:
            with nullcontext() if self._places is None else self._places.taken():
                await self._send(scope, receive, send_in_time)
        finally:
            await self._content.aclose()
            self._close()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except FedplccError as error:
            log.error("response_broke_off", path=scope["path"], reason=error.reason, detail=error.detail)
            raise StreamAborted from error
