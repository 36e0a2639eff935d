"""Domains of a round's clients, where every domain weighs alike (`method.averaging = "domain"`).

A client may join again with another domain at any time. So the event that a round has all its updates also has the domains
of that moment. The aggregation reads them there, and so does whoever computes the round again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.types import Event, EventQuery, Run

HAS_ALL_UPDATES = "round_aggregating"
"""Type of the event that a round has all its updates."""
PAGE = 100
"""Events read at a time."""


def with_domains(event: Event, domains: Mapping[str, str]) -> Event:
    """Return the event with the domain of each client that has given an update."""
    return replace(event, data={**event.data, "domains": dict(sorted(domains.items()))})


def weighed_domains(run: Run, store: Store) -> Mapping[str, str]:
    """Return the domain of each client with an update in the run's round; nothing where domains do not weigh."""
    current = run.current_round
    if current is None or config_of(run).method.averaging != "domain":
        return {}
    query = EventQuery(run_id=run.run_id, types=(HAS_ALL_UPDATES,), newest_first=True, limit=PAGE)
    while page := store.list_events(query):
        for event in page:
            if event.round == current.number:
                domains: dict[str, str] = event.data["domains"]
                return domains
        query = replace(query, before=page[-1].sequence)
    raise AssertionError(f"round {current.number} of run {run.run_id} has all its updates, and no event says so")
