"""Best rounds of runs by validation, as their histories say."""

from __future__ import annotations

from fedplcc.aggregator.rounds.validation import BEST_ROUND, Best, best_of
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.types import EventQuery


def find_best(store: Store, run_id: str) -> Best | None:
    """Return the best round of a run by validation, as its history says; None if none was validated."""
    return best_of(store.list_events(EventQuery(run_id=run_id, types=(BEST_ROUND,), newest_first=True, limit=1)))
