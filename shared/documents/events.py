"""Documents of a run's history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document, utc_time


class Event(Document):
    """One entry of the history."""

    sequence: int
    """Rising position in the history; what `after`, `before` and Last-Event-ID name."""
    time: datetime
    type: str
    """Name, for instance "round_opened"."""
    run_id: str | None
    round: int | None
    """The round; null for an event without one."""
    client_id: str | None
    data: dict[str, Any]
    """Details; for "round_committed" the line of metrics.jsonl, and intervals of its scores by number of test images."""

    @classmethod
    def of(cls, event: types.Event) -> Self:
        """Return the document of an event."""
        return cls.like(
            event,
            time=utc_time(event.time),
            run_id=event.run_id or None,
            round=event.round if event.round >= 0 else None,
            client_id=event.client_id or None,
        )


class EventPage(Document):
    """Events of a run, in order or newest first."""

    events: list[Event]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""
    last_sequence: int
    """Highest sequence of this page, or the one asked for: `after` or Last-Event-ID of a stream that goes on from here."""
    has_ended: bool
    """Whether the run has ended and this page has its last event."""

    @classmethod
    def of(cls, events: Sequence[types.Event], next_page_token: str | None, *, after: int, has_ended: bool) -> Self:
        """Return a page; `after` is the lowest sequence that was asked for."""
        return cls(
            events=[Event.of(event) for event in events],
            next_page_token=next_page_token,
            last_sequence=max((event.sequence for event in events), default=after),
            has_ended=has_ended,
        )
