"""Bytes in and out: how many, whose transfers went on from an offset, and what had to be moved more than once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Literal

from aggregator.metrics.families import Families

Direction = Literal["sent", "received"]
DIRECTIONS: tuple[Direction, ...] = ("sent", "received")
KINDS = ("model", "prototypes")
REMEMBERED = 4096
"""Transfers of which it is remembered how far they came; the one that has not moved for longest is forgotten first."""


class Furthest:
    """How far transfers have come, to tell what is moved again."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[str, str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def again(self, transfer: tuple[str, str, str], offset_bytes: int, num_bytes: int) -> int:
        """How many of these bytes of a transfer had been moved before; from now on all of them have."""
        end = offset_bytes + num_bytes
        with self._lock:
            furthest = self._ends.pop(transfer, 0)
            self._ends[transfer] = max(furthest, end)
            if len(self._ends) > REMEMBERED:
                self._ends.popitem(last=False)
        return max(0, min(end, furthest) - offset_bytes)


class TransferMetrics:
    """Payload bytes of models and prototypes."""

    def __init__(self, families: Families) -> None:
        self._bytes = families.counter("transfer_bytes_total", "Payload bytes moved.", "direction", "kind")
        self._resumed = families.counter(
            "transfers_resumed_total", "Transfers that went on from an offset.", "direction"
        )
        self._resent = families.counter(
            "transfer_resent_bytes_total", "Payload bytes moved to or from a client that had moved before.", "direction"
        )
        self._furthest = Furthest()
        for direction in DIRECTIONS:
            self._resumed.labels(direction)
            self._resent.labels(direction)
            for kind in KINDS:
                self._bytes.labels(direction, kind)

    def moved(
        self, num_bytes: int, *, direction: Direction, kind: str, client_id: str, sha256: str, offset_bytes: int
    ) -> None:
        """Count a piece of a client's blob; kind is "model" or "prototypes"."""
        self._bytes.labels(direction, kind).inc(num_bytes)
        again = self._furthest.again((direction, client_id, sha256), offset_bytes, num_bytes)
        if again:
            self._resent.labels(direction).inc(again)

    def resumed(self, direction: Direction) -> None:
        """Count a transfer that goes on from an offset."""
        self._resumed.labels(direction).inc()
