"""Runs that evaluate some of their rounds: the same training, and no report asked, counted or missed in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.doctor.aggregator_state import examine_state
from fedplcc.doctor.findings import Status, Subject
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.types import Run, RunStatus, TaskKind
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.builders import an_evaluation

ROUNDS = {"rounds": 6}
SELDOM = {"every": 3, "last": 1}
EVALUATED = [3, 6]


class Hoarding(LocalFederation):
    """A federation whose aggregator keeps what a replay needs."""

    keep = Keep(updates=10)


JOINED = (NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7)))


def lines(federation: LocalFederation, run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in federation.metrics_lines(run.run_id) if line]


def whole(federation: LocalFederation, name: str, **sections: Any) -> Run:
    run = federation.run_to_end(federation.create(name, run=ROUNDS, **sections).run_id)
    assert run.status is RunStatus.COMPLETED
    return run


@pytest.mark.parametrize("method", ["fedavg", "fedplcc", "fedccl"])
def test_training_gives_the_bytes_that_it_gives_where_every_round_is_evaluated(
    federation: LocalFederation, method: str
) -> None:
    often, seldom = (lines(federation, whole(federation, method, **more)) for more in ({}, {"evaluation": SELDOM}))
    for left, right in zip(often, seldom, strict=True):
        is_evaluated = left["round"] in EVALUATED
        for key in ("accuracy", "accuracy_local"):
            assert right.get(key) == (left.get(key) if is_evaluated else None)
        assert left.keys() == right.keys()
        assert {**left, "accuracy": 0, "accuracy_local": 0} == {**right, "accuracy": 0, "accuracy_local": 0}


def test_a_run_that_shares_no_model_says_in_every_line_whose_accuracy_it_would_be(federation: LocalFederation) -> None:
    document = a_document("fedproto", run=ROUNDS, evaluation=SELDOM) | {"method": {"share_model": False}}
    run = federation.run_to_end(federation.coordinator.create_run("request", document).run_id)
    assert {line["accuracy_of"] for line in lines(federation, run)} == {"local"}


def test_nobody_is_asked_for_a_report_on_another_round_and_its_history_has_none(federation: LocalFederation) -> None:
    run = whole(federation, "fedavg", evaluation=SELDOM)
    reported = [event.round for event in federation.events(run.run_id, "evaluation_reported")]
    assert reported == [3, 3, 6, 6]
    history = [event.type for event in federation.events(run.run_id) if event.round == 2]
    assert history == [
        "round_opened",
        "update_committed",
        "update_committed",
        "round_aggregating",
        "round_evaluating",
        "round_committed",
    ]


def test_a_report_on_a_round_that_is_not_evaluated_is_refused(federation: LocalFederation) -> None:
    run = federation.create(run=ROUNDS, evaluation=SELDOM)
    ann = federation.clients["ann"]
    federation.step()  # round 0
    federation.step()
    now = federation.coordinator.get_run(run.run_id)
    assert now.round_number == 2, "round 1 has committed without a report"
    assert federation.task(ann).kind is TaskKind.TRAIN
    report = an_evaluation("ann")
    with pytest.raises(FedplccError, match="round 1 takes no more evaluations"):
        federation.coordinator.report_evaluation(ann.client_id, ann.token, run.run_id, 1, report)
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_metrics_keep_the_accuracy_of_the_last_evaluated_round_and_move_on_with_the_losses(
    federation: LocalFederation,
) -> None:
    run = federation.create(run=ROUNDS, evaluation=SELDOM)

    def mean() -> float | None:
        return federation.metric("mean_domain_accuracy_ratio", run=run.run_id)

    while federation.coordinator.get_run(run.run_id).round_number < 3:
        federation.step()
    assert mean() is None
    assert federation.metric("training_loss", run=run.run_id, term="ce") == lines(federation, run)[1]["loss"]["ce"]
    while federation.coordinator.get_run(run.run_id).round_number < 5:
        federation.step()
    committed = lines(federation, run)
    assert committed[-1]["accuracy"] is None
    assert mean() == committed[2]["accuracy"]["mean"]


def test_the_results_of_such_a_round_are_known_as_stored(federation: LocalFederation) -> None:
    run = whole(federation, "fedplcc", evaluation=SELDOM)
    known = {sha256 for sha256, _ in federation.store.list_blobs()}
    for current in federation.coordinator.list_rounds(run.run_id, after=0):
        assert current.model is not None
        assert current.prototypes is not None
        assert {current.model.sha256, current.prototypes.sha256} <= known, f"round {current.number}"


def test_such_a_round_is_replayed_and_examined_as_any_other(folder: Path) -> None:
    with Hoarding.small(folder) as federation:
        federation.join()
        run = federation.run_to_end(
            federation.create("fedplcc", run={"rounds": 3}, evaluation={"every": 100, "last": 1}).run_id
        )
        assert replay(folder, run.run_id, 2).is_equal
    findings = list(examine_state(Subject(state=folder)))
    assert [finding.sentence for finding in findings if finding.status is not Status.OK] == []
