"""Metrics of transfers: payload bytes, resumed transfers, bytes moved more than once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from fedplcc.aggregator.metrics.families import Families
from fedplcc.shared.types import TaskKey

Direction = Literal["sent", "received"]
DIRECTIONS: tuple[Direction, ...] = ("sent", "received")
KINDS = ("model", "prototypes")
REMEMBERED = 4096
"""Most transfers whose furthest offset is remembered; the one idle for longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfer of one blob to or from a client for one task; for another task the same bytes are a new transfer."""

    direction: Direction
    client_id: str
    task: TaskKey | None
    sha256: str


class Furthest:
    """Furthest offset of each transfer, from which repeated bytes are counted."""

    def __init__(self) -> None:
        self._ends: OrderedDict[Transfer, int] = OrderedDict()
        self._lock = threading.Lock()

    def again(self, transfer: Transfer, offset_bytes: int, num_bytes: int) -> int:
        """Record a moved piece; returns how many of its bytes had been moved before."""
        end = offset_bytes + num_bytes
        with self._lock:
            furthest = self._ends.pop(transfer, 0)
            self._ends[transfer] = max(furthest, end)
            if len(self._ends) > REMEMBERED:
                self._ends.popitem(last=False)
        return max(0, min(end, furthest) - offset_bytes)


class TransferMetrics:
    """Metrics of transferred models and prototypes."""

    def __init__(self, families: Families) -> None:
        self._bytes = families.counter("transfer_bytes_total", "Payload bytes moved.", "direction", "kind")
        self._resumed = families.counter("transfers_resumed_total", "Transfers resumed from an offset.", "direction")
        self._resent = families.counter(
            "transfer_resent_bytes_total",
            "Payload bytes moved again to or from a client for the same task.",
            "direction",
        )
        self._furthest = Furthest()
        for direction in DIRECTIONS:
            self._resumed.labels(direction)
            self._resent.labels(direction)
            for kind in KINDS:
                self._bytes.labels(direction, kind)

    def moved(self, transfer: Transfer, *, kind: str, offset_bytes: int, num_bytes: int) -> None:
        """Count a piece of a blob; kind is "model" or "prototypes"."""
        self._bytes.labels(transfer.direction, kind).inc(num_bytes)
        again = self._furthest.again(transfer, offset_bytes, num_bytes)
        if again:
            self._resent.labels(transfer.direction).inc(again)

    def resumed(self, direction: Direction) -> None:
        """Count a transfer resumed from an offset."""
        self._resumed.labels(direction).inc()
