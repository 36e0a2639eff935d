"""Reading server-sent events: lines in, events out. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream: its name, its data, and the id that a reconnection continues after."""

    name: str
    data: str
    event_id: str


async def read_events(lines: AsyncIterable[str]) -> AsyncIterator[ServerSentEvent]:
    """Yield the complete events among the lines of a stream, as the HTML standard's section 9.2.6 reads them.

    Args:
        lines: Without their line ends. What follows the last empty line is no event yet and is dropped.
    """
    name, event_id = "", ""
    data: list[str] = []
    async for line in lines:
        if not line:
            if data:
                yield ServerSentEvent(name or "message", "\n".join(data), event_id)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id" and "\0" not in value:
            event_id = value
