"""Operation that returns a run's history, as server-sent events or as a page."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request, Response
from pydantic import Field

from fedplcc.gateway.http.bodies import sse
from fedplcc.gateway.http.bodies.streaming import Stream
from fedplcc.gateway.http.described.operations import SCHEMA, Operations
from fedplcc.gateway.routes.dependencies import Aggregator, Services, services_of
from fedplcc.gateway.routes.parameters import RUN_PATH, PageToken, RunId
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared import documents
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.convert.reading.page_tokens import number_of, token_of
from fedplcc.shared.errors import MalformedRequest, Overloaded, RunNotFound
from fedplcc.shared.types import EventQuery

OPERATIONS = Operations("events")
MAX_EVENT_TYPES = 64
"""Most types of events that a page is limited to; there are fewer."""
MAX_SEQUENCE = 2**63 - 1

EventType = Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="Sequence of the last event that was received.")
]

_FRAME = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "id": {"type": "string", "description": "Sequence of the event; `Last-Event-ID` resumes after it."},
        "event": {
            "type": "string",
            "description": "The event's type; `end` and `problem` are the last frame of a stream.",
        },
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"oneOf": [{"$ref": SCHEMA.format(model=name)} for name in ("Event", "Run", "Problem")]},
        },
    },
}
_EVENTS: dict[int | str, Any] = {
    200: {
        "description": "Server-sent events, or a page.",
        "content": {
            "text/event-stream": {"itemSchema": _FRAME},
            "application/json": {"schema": {"$ref": SCHEMA.format(model="EventPage")}},
        },
    }
}


@OPERATIONS.add("GET", f"{RUN_PATH}/events", refusals=(RunNotFound, Overloaded), responses=_EVENTS)
async def get_events(
    request: Request,
    aggregator: Aggregator,
    run_id: RunId,
    after: Annotated[int | None, Query(ge=0, le=MAX_SEQUENCE, description="Only events after this sequence.")] = None,
    page_size: Annotated[int, Query(ge=1, le=1000, description="Of a page.")] = 500,
    before: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Only events before this; 0 for no limit.")] = 0,
    order: Annotated[Literal["oldest_first", "newest_first"], Query(description="Of a page.")] = "oldest_first",
    types: Annotated[
        tuple[EventType, ...],
        Query(alias="type", max_length=MAX_EVENT_TYPES, description="Only events of these types."),
    ] = (),
    client: Annotated[str, Query(pattern=rf"^$|{NAME_PATTERN}", description="Only events of this client.")] = "",
    page_token: PageToken = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Follow a run's history as server-sent events, or return a page of it.

    The answer is a page if the request does not accept text/event-stream, and accepts application/json or has `after`,
    `before`, `order`, `type`, `client` or `page_token`. Otherwise it is a stream of every event after `Last-Event-ID`, else
    after `after`.
    """
    accepted = request.headers.get("accept", "")
    newest_first = order == "newest_first"
    chooses = bool(before or newest_first or types or client or page_token)
    wants_page = sse.MEDIA_TYPE not in accepted and (after is not None or chooses or "application/json" in accepted)
    if chooses and not wants_page:
        raise MalformedRequest(
            "query: before, order, type, client and page_token are for pages; accept application/json"
        )
    kind = f"events/{order}"
    place = number_of(kind, page_token, most=MAX_SEQUENCE) if page_token else 0
    view = await aggregator.get_run(run_id)
    if request.method == "HEAD":
        return Response(media_type="application/json" if wants_page else sse.MEDIA_TYPE)
    if not wants_page:
        return _event_stream(services_of(request), aggregator, run_id, _cursor(last_event_id, after))
    events = await aggregator.list_events(
        EventQuery(
            run_id=run_id,
            after=after or 0 if newest_first else max(after or 0, place),
            before=min(before or place, place) if newest_first and place else before,
            limit=page_size,
            types=types,
            client_id=client,
            newest_first=newest_first,
        )
    )
    # The run was fetched first: if it had ended by then, its history is complete.
    is_full = len(events) == page_size
    is_newest = not before and (not place if newest_first else not is_full)
    page = documents.EventPage.of(
        events,
        token_of(kind, events[-1].sequence) if is_full else None,
        after=max(after or 0, 0 if newest_first else place),
        has_ended=view.run.status.is_final and is_newest,
    )
    return Response(page.model_dump_json(), media_type="application/json")


def _event_stream(services: Services, aggregator: RunServiceClient, run_id: str, after: int) -> Response:
    async def content() -> AsyncGenerator[str, None]:
        with services.metrics.event_streams.track_inprogress():
            items = sse.follow_run(aggregator, run_id, after=after)
            async with aclosing(sse.frames(items, stopping=services.stopping)) as frames:
                async for frame in frames:
                    yield frame

    return Stream(content(), headers=sse.HEADERS, media_type=sse.MEDIA_TYPE, places=services.streams)


def _cursor(last_event_id: str | None, after: int | None) -> int:
    if not last_event_id:
        return after or 0
    if not re.fullmatch(r"[0-9]{1,19}", last_event_id) or int(last_event_id) > MAX_SEQUENCE:
        raise MalformedRequest("header.Last-Event-ID: it is not the id of an event of this stream")
    return int(last_event_id)
