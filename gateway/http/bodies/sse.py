"""A run's history as server-sent events.

Every event is one frame whose `id` is its sequence. `Last-Event-ID` resumes after it, from the aggregator's event table: a
reader gets each event once over any number of reconnections. The stream survives a restart of the aggregator, sends
comments in silent times, and ends with the run, after a frame `end` that holds the run.

    retry: 2000                                       delay before a browser reconnects, in milliseconds

    id: 7
    event: round_committed
    data: {"sequence":7,"time":"...","type":"round_committed",...}

    : alive                                           every 15 seconds without an event

    event: end
    data: {"run_id":"digits-1f0c","status":"completed",...}

An error that a retry would not mend is a frame `problem`, the last of its stream. `end` and `problem` have no id, so that a
reader that missed them gets them again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Protocol

from fedplcc.gateway.http.problem import problem_of
from fedplcc.shared import types
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.documents import Document, Event, Run
from fedplcc.shared.errors import FedplccError, Unavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.backoff import backoff

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Neither a cache nor a proxy may hold a frame back."""
HEARTBEAT_S = 15.0
"""Longest silence; proxies close streams that look idle."""
BROWSER_RETRY_MS = 2000
EVENTS_PER_CALL = 1000

Sleep = Callable[[float], Awaitable[None]]
log = get_logger("fedplcc.gateway.http.bodies.sse")


class History(Protocol):
    """Source of a run's history."""

    def follow_events(self, run_id: str, *, after: int) -> AsyncGenerator[types.Event, None]:
        """Events with a greater sequence, in order, as they happen; may end before the run does."""

    async def list_events(self, query: types.EventQuery) -> list[types.Event]:
        """Events that match a query."""

    async def get_run(self, run_id: str) -> RunView:
        """The run."""


async def follow_run(
    history: History, run_id: str, *, after: int, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[types.Event | RunView, None]:
    """Yield the run's events after a cursor, each once and in order; then the run, when it has ended.

    A lost connection is opened again after growing pauses, from the last event on.

    Raises:
        FedplccError: The history cannot be read, and a retry would not help.
    """
    pauses = backoff(random.Random())  # nosec B311 # no secret
    while True:
        before = after
        try:
            async with aclosing(history.follow_events(run_id, after=after)) as events:
                async for event in events:
                    after = event.sequence
                    yield event
            view = await history.get_run(run_id)
            if view.run.status.is_final:
                # The stream may have ended for another reason, just before the run did.
                while page := await history.list_events(
                    types.EventQuery(run_id=run_id, after=after, limit=EVENTS_PER_CALL)
                ):
                    for event in page:
                        after = event.sequence
                        yield event
                yield view
                return
        except Unavailable as error:
            log.warning("history_interrupted", run_id=run_id, after=after, reason=error.reason, detail=error.detail)
        if after > before:
            pauses = backoff(random.Random())  # nosec B311 # no secret
        await sleep(next(pauses))


async def frames(
    items: AsyncGenerator[types.Event | RunView, None],
    *,
    stopping: asyncio.Event,
    heartbeat_s: float = HEARTBEAT_S,
) -> AsyncGenerator[str, None]:
    """Yield the stream's frames until the run ends or the gateway stops. Closes `items`."""
    stop = asyncio.ensure_future(stopping.wait())
    pending: asyncio.Future[types.Event | RunView] | None = None
    try:
        yield f"retry: {BROWSER_RETRY_MS}\n\n"
        while True:
            pending = pending or asyncio.ensure_future(anext(items))
            waited: set[asyncio.Future[Any]] = {pending, stop}
            await asyncio.wait(waited, timeout=heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
            if pending.done():
                found, pending = pending, None
                yield _frame(found.result())
            elif stop.done():
                yield ": the gateway stops; reconnect\n\n"
                return
            else:
                yield ": alive\n\n"
    except StopAsyncIteration:
        return
    except FedplccError as error:
        yield _encode(problem_of(error), event="problem")
    finally:
        await _cancel(stop, pending)
        await items.aclose()


def _frame(item: types.Event | RunView) -> str:
    if isinstance(item, RunView):
        return _encode(Run.of(item), event="end")
    return _encode(Event.of(item), event=item.type, sequence=item.sequence)


def _encode(document: Document, *, event: str, sequence: int | None = None) -> str:
    """One frame; the JSON has no line breaks, so its data is one line."""
    name = "" if sequence is None else f"id: {sequence}\n"
    return f"{name}event: {event}\ndata: {document.model_dump_json(by_alias=True)}\n\n"


async def _cancel(*futures: asyncio.Future[Any] | None) -> None:
    for future in futures:
        if future is not None:
            future.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, FedplccError):
                await future
