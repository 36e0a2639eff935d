"""Who must be among a cohort for a round to go on without the rest of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """What a phase of a round needs at least; the whole cohort if nothing is set."""

    min_clients: int | None = None
    """Fewest clients."""
    domains: Mapping[str, str] | None = None
    """The domain of each client of the cohort, where every one of these domains must be there."""

    def lacks(self, cohort: Collection[str], here: Collection[str]) -> str:
        """What is missing for the quorum, in words; empty where nothing is.

        Args:
            cohort: Clients that may take part at all.
            here: Those who did their part, or are thought to be about to.
        """
        needed = self.min_clients
        if needed is None:
            needed = max(1, len(cohort)) if self.domains is None else 1
        words = [] if len(here) >= needed else [f"{len(here)} of the {needed} clients that it needs"]
        if self.domains is not None:
            of = self.domains
            absent = sorted({of.get(name, name) for name in cohort} - {of.get(name, name) for name in here})
            words += [f"no client of domain {domain}" for domain in absent]
        return " and ".join(words)


WHOLE_COHORT = Quorum()
"""The default: nobody may be missing."""
