"""Events of the history, and queries of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the append-only history; `sequence` is 0 until it is written."""

    type: str
    run_id: str = ""
    round: int = -1
    client_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    sequence: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """A query of the history, with at most `limit` entries: in order, or the newest first."""

    run_id: str = ""
    """Only events of this run, if given."""
    after: int = 0
    """Only events with a greater sequence."""
    before: int = 0
    """Only events with a smaller sequence; 0 for no limit."""
    types: tuple[str, ...] = ()
    """Only events of these types, if given."""
    client_id: str = ""
    """Only events of this client, if given."""
    newest_first: bool = False
    limit: int = 1000
