"""Runs in a store, and one with something in every field."""

from __future__ import annotations

from fedplcc.aggregator.store.base import Store
from fedplcc.shared.reasons import Dropped, DropReason, Stated
from fedplcc.shared.run_lists import RunLabels
from fedplcc.shared.types import PrototypeCounts, Rejections, RoundPhase, Run
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update


def add_run(store: Store, run: Run, labels: RunLabels | None = None) -> Run:
    with store.transaction() as transaction:
        transaction.add_run(run, request_id=f"request of {run.run_id}", request_hash=run.config_hash)
        if (current := run.current_round) is not None:
            transaction.save_run(run)
            for update in current.updates.values():
                transaction.add_update(run.run_id, current.number, update)
            for evaluation in current.evaluations.values():
                transaction.add_evaluation(run.run_id, current.number, evaluation)
        if labels is not None:
            transaction.save_labels(run.run_id, labels)
    return run


def a_full_run() -> Run:
    """A run whose round 1 is being evaluated, with something in every field."""
    current = a_round(
        1,
        RoundPhase.EVALUATING,
        updates={"ann": an_update("ann"), "bob": an_update("bob", losses={"ce": 1e-300})},
        evaluations={"bob": an_evaluation("bob")},
        model=a_blob("new"),
        prototypes=a_blob("new prototypes", "global_cluster"),
        results_json='{"accuracy":0.1}',
        timings_json='{"seconds":0.30000000000000004}',
        prototype_counts=PrototypeCounts(by_class=(2, 0, 1), weights=(0.1, 1 / 3, 1.0)),
        dropped={"cyn": Dropped(DropReason.QUARANTINED, "3 updates: é")},
    )
    refused = Rejections(count=3, reason="MALFORMED_UPDATE", check="finite", detail="é", round=1, last_at=0.1)
    return a_run(
        current_round=current,
        is_pause_requested=True,
        reason=Stated("weil «warum» nicht reicht: ü"),
        quarantined={"cyn": "3 updates were refused", "dan": ""},
        rejections={"cyn": refused, "bob": Rejections(count=1, reason="MALFORMED_UPDATE")},
    )
