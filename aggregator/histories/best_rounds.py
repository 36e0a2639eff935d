"""Best rounds of runs by validation, as their histories say."""

from __future__ import annotations

from fedplcc.aggregator.rounds.validation import BEST_ROUND, Best, best_of, judged_round
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.types import EventQuery


def find_best(store: Store, run_id: str) -> Best | None:
    """Return the best round of a run by validation, as its history says; None if none was validated."""
    return best_of(store.list_events(EventQuery(run_id=run_id, types=(BEST_ROUND,), newest_first=True, limit=1)))


def find_comparable(store: Store, run_id: str) -> Best | None:
    """Return the best round as others are compared with it: with its score by domain, as its line has it."""
    best = find_best(store, run_id)
    judged = None if best is None else judged_round(store.find_round(run_id, best.round), best)
    return best if judged is None else judged
