"""Responses that are sent while they are produced."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from shared.errors import FedplccError
from shared.process.log import get_logger

log = get_logger("gateway.http.streaming")


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
    ) -> None:
        super().__init__(content, status, headers, media_type)
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response.

        Raises:
            StreamAborted: The generator failed; HTTP can only break off at this point.
        """
        try:
            await super().__call__(scope, receive, send)
        except FedplccError as error:
            log.error("response_broke_off", path=scope["path"], reason=error.reason, detail=error.detail)
            raise StreamAborted from error
        finally:
            await self._content.aclose()
