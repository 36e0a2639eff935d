"""Documents of the history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from shared import types
from shared.documents.document import Document, utc_time


class Event(Document):
    """One entry of the history."""

    sequence: int
    """Position in the history, rising; the cursor of `after` and Last-Event-ID."""
    time: datetime
    type: str
    """Name, for instance "round_opened"."""
    run_id: str | None
    round: int | None
    """The round; null where none is meant."""
    client_id: str | None
    data: dict[str, Any]
    """Details; for "round_committed" the line of metrics.jsonl."""

    @classmethod
    def of(cls, event: types.Event) -> Self:
        """The document of an event."""
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
    """`after` of what comes later: of the next page, or of a stream; as it was asked for when there is nothing new."""
    has_ended: bool
    """Whether the run has ended and no event comes after those of this page."""
    next_before: int | None = None
    """`before` of the next page when the newest come first; null when there are no older ones, and in order."""

    @classmethod
    def of(
        cls, events: Sequence[types.Event], page_size: int, *, after: int, newest_first: bool, is_final: bool
    ) -> Self:
        """A page; `after` is what it was asked for with, `is_final` whether the history is complete."""
        is_full = len(events) == page_size
        return cls(
            events=[Event.of(event) for event in events],
            next_after=max((event.sequence for event in events), default=after),
            has_ended=is_final and (newest_first or not is_full),
            next_before=events[-1].sequence if newest_first and is_full else None,
        )
