"""Requests that the gateway refuses by itself and that the audit is to name: changes, and keys that are tried out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fedplcc.shared.bounds import MAX_REFUSALS
from fedplcc.shared.wire.addresses import is_network

MOST_KINDS = 256
"""Most pairs of limit and address that are told apart between two reports."""
OTHERS = "others"
"""Address of the refusals beyond that, and of those whose address is none of the internet protocol."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusals of one kind."""

    reason: str
    limit: str
    address: str
    count: int


class RefusedRequests:
    """Refusals that wait to be reported, counted by reason, limit and address; memory is bounded."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._total = 0

    def add(self, reason: str, limit: str, address: str, count: int = 1) -> None:
        """Count a refusal."""
        kind = (reason, limit, address if is_network(address) else OTHERS)
        if kind not in self._counts and len(self._counts) >= MOST_KINDS - 3:  # room for the others of each limit
            kind = (reason, limit, OTHERS)
        counted = min(count, MAX_REFUSALS - self._total)
        if counted > 0:
            self._counts[kind] += counted
            self._total += counted

    def take(self) -> list[Refused]:
        """Return what waits; it waits no more."""
        taken = [Refused(*kind, count) for kind, count in self._counts.items()]
        self._counts.clear()
        self._total = 0
        return taken

    def put_back(self, refusals: list[Refused]) -> None:
        """Let refusals wait that could not be reported."""
        for each in refusals:
            self.add(each.reason, each.limit, each.address, each.count)
