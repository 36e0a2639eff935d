"""Request bodies with any JSON object, read strictly and beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fedplcc.gateway.http.guards.slots import Turns
from fedplcc.shared.convert.reading.json_text import parse_json_object

Answer = TypeVar("Answer")


async def with_json_object(request: Request, turns: Turns, use: Callable[[dict[str, Any]], Answer]) -> Answer:
    """Return what `use` makes of the JSON object in the body of a request; both run in a thread.

    Raises:
        HTTPException: 415 for another media type. Browsers send application/json to another site only with its consent, so
            no page can start runs on a gateway that its reader can reach.
        MalformedRequest: See `parse_json_object`.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415)
    body = await request.body()
    return await turns.take(lambda: use(parse_json_object(body)))
