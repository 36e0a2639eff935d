"""Quorums: the clients and domains that a round needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fedplcc.shared.reasons import Lack, TooFewClients


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The clients that a phase of a round needs; the whole cohort if nothing is set."""

    min_clients: int | None = None
    """Fewest clients."""
    domains: Mapping[str, str] | None = None
    """The domain of each client of the cohort, if the phase needs a client of every domain; else None."""

    def lack(self, cohort: Collection[str], here: Collection[str]) -> Lack | None:
        """Return what is missing for the quorum, or None.

        Args:
            cohort: Clients that may take part.
            here: Clients that have done their part or are expected to.
        """
        needed = self.min_clients
        if needed is None:
            needed = max(1, len(cohort)) if self.domains is None else 1
        too_few = None if len(here) >= needed else TooFewClients(len(here), needed)
        absent: set[str] = set()
        if self.domains is not None:
            of = self.domains
            absent = {of.get(name, name) for name in cohort} - {of.get(name, name) for name in here}
        return Lack(clients=too_few, domains=tuple(sorted(absent))) if too_few or absent else None


WHOLE_COHORT = Quorum()
"""The default: no client may be missing."""
