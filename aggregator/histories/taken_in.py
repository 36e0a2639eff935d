"""How many samples a client had when a run took it in, so that its weight in the run cannot grow without bound.

A client says itself how many samples it has, in each Join. What it said when the run began with it, or when a person
admitted it, is in the run's history; ten times as many weigh, and no more until a person retires it and admits it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.aggregator.rounds.configuration import place_of
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import EventQuery, Run

GROWTH = 10
"""Times the samples with which a client came up to which it may grow."""
FREE = 1000
"""Samples up to which any client may grow."""
MAX_EVENTS = 1000
"""Newest events that are looked through; a client that came before them is not bounded."""
MAX_RUNS = 64
"""Runs that are remembered."""
COMING = ("run_started", "clients_admitted", "client_admitted")
"""Events that say how many samples clients come with."""


class TakenIn:
    """Numbers of samples with which clients came into runs; any thread may call it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[object, Mapping[str, int]]] = {}

    def check_growth(self, run: Run, client_id: str, num_examples: int) -> None:
        """Check that an update weighs no more than the client may have grown to; not where stages change its data.

        Raises:
            MalformedUpdate: check is num_examples.
        """
        most = None if num_examples <= FREE else self.most(run, client_id)
        if most is not None and num_examples > most:
            came_with = self._of(run)[client_id]
            raise MalformedUpdate(
                f"num_examples = {num_examples}: the client had {came_with} samples when the run took it in, and may have "
                f"{GROWTH} times as many; retire it from the run and admit it again, if its data have grown",
                check="num_examples",
            )

    def most(self, run: Run, client_id: str) -> int | None:
        """Return the samples up to which a client may have grown; None where stages change its data, or nothing is known."""
        came_with = None if place_of(run) is not None else self._of(run).get(client_id)
        return None if came_with is None else max(FREE, GROWTH * came_with)

    def _of(self, run: Run) -> Mapping[str, int]:
        stand = run.num_admissions, run.roster
        known = self._known.get(run.run_id)
        if known is not None and known[0] == stand:
            return known[1]
        found = self._read(run)
        self._known = dict([*self._known.items()][1 - MAX_RUNS :]) | {run.run_id: (stand, found)}
        return found

    def _read(self, run: Run) -> Mapping[str, int]:
        query = EventQuery(run_id=run.run_id, types=COMING, newest_first=True, limit=MAX_EVENTS)
        found: dict[str, int] = {}
        for event in self._store.list_events(query):
            if event.client_id and "num_examples" in event.data:
                found.setdefault(event.client_id, event.data["num_examples"])
            for client_id, entry in event.data.get("clients", {}).items():
                found.setdefault(client_id, entry["num_examples"])
        return found
