"""Documents of a run's history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from shared import types
from shared.documents.document import Document, utc_time


class Event(Document):
    """One entry of the history."""

    sequence: int
    """Rising position in the history; the cursor of `after` and Last-Event-ID."""
    time: datetime
    type: str
    """Name, for instance "round_opened"."""
    run_id: str | None
    round: int | None
    """The round; null for an event without one."""
    client_id: str | None
    data: dict[str, Any]
    """Details; for "round_committed" the line of metrics.jsonl."""

    @classmethod
    def of(cls, event: types.Event) -> Self:
        """Return the document of an event."""
        return cls(
            sequence=event.sequence,
            time=utc_time(event.time),
            type=event.type,
            run_id=event.run_id or None,
            round=event.round if event.round >= 0 else None,
            client_id=event.client_id or None,
            data=dict(event.data),
        )


class EventPage(Document):
    """Events of a run, in order or newest first."""

    events: list[Event]
    next_after: int
    """`after` of the next page, or of a stream that continues this page; unchanged without new events."""
    has_ended: bool
    """Whether the run has ended and this page has its last event."""
    next_before: int | None = None
    """`before` of the next page if the newest events come first; null without older events, and in the order of time."""

    @classmethod
    def of(
        cls, events: Sequence[types.Event], page_size: int, *, after: int, newest_first: bool, is_final: bool
    ) -> Self:
        """Return a page; `after` is the request's, `is_final` says whether the history is complete."""
        is_full = len(events) == page_size
        return cls(
            events=[Event.of(event) for event in events],
            next_after=max((event.sequence for event in events), default=after),
            has_ended=is_final and (newest_first or not is_full),
            next_before=events[-1].sequence if newest_first and is_full else None,
        )
