"""The best round by validation: told by the history, kept against collection, and the measure of an early end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.rounds.validation import Best, best_of_lines
from fedplcc.shared.chance import RunWarningKind
from fedplcc.shared.errors import BlobNotFound, RoundNotFound
from fedplcc.shared.reasons import StoppedEarly, sentence_of
from fedplcc.shared.run_lists import RunQuery
from fedplcc.shared.types import BEST, Evaluation, EvaluationCounts, Run, RunStatus, Task
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

HITS = (1, 4, 2, 9, 9, 3, 5, 2)
"""Hits of each client among 10 validation images, from round 1 on: round 4 is the best one."""


class Validating(NumpyClient):
    """A client that reports validation images too."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        report = super().evaluation(task, model)
        counts = EvaluationCounts("validation", "global", (HITS[task.round - 1], 0, 0), (10, 0, 0))
        return replace(report, counts=(*report.counts, counts))


class Frugal(LocalFederation):
    """A federation that keeps as little as it may."""

    keep = Keep(models=1, prototypes=0, updates=0)


FEDERATION = Frugal
JOINED = (Validating("ann"), Validating("bob"))


def whole(federation: LocalFederation, **run: Any) -> Run:
    created = federation.create("fedplcc", run={"rounds": len(HITS), **run})
    return federation.run_to_end(created.run_id)


def best_rounds(federation: LocalFederation, run: Run) -> list[tuple[int, float]]:
    return [(event.round, event.data["accuracy"]) for event in federation.events(run.run_id, "best_round")]


def kept_models(federation: LocalFederation, run: Run) -> list[int]:
    federation.coordinator.garbage_collection.collect()
    kept: list[int] = []
    for number in range(run.total_rounds + 1):
        try:
            federation.coordinator.artifact(run.run_id, number, "model")
        except (BlobNotFound, RoundNotFound):
            continue
        kept.append(number)
    return kept


def test_each_better_round_is_an_event_and_the_last_of_them_is_the_best(federation: LocalFederation) -> None:
    run = whole(federation)
    assert best_rounds(federation, run) == [(1, 0.1), (2, 0.4), (4, 0.9)], "an equal one is not better"
    assert federation.coordinator.best_round(run) == 4
    model, _path = federation.coordinator.artifact(run.run_id, BEST, "model")
    line = json.loads(federation.metrics_lines(run.run_id)[3])
    assert (line["round"], line["model_sha256"]) == (4, model.sha256)
    assert line["accuracy_validation"]["mean"] == 0.9


def test_the_best_model_is_kept_beside_the_last_one_and_the_one_before_it_is_not(federation: LocalFederation) -> None:
    run = federation.create("fedplcc", run={"rounds": len(HITS)})
    while (now := federation.coordinator.get_run(run.run_id)).round_number < 4:
        federation.step()
    assert 2 in kept_models(federation, now)
    run = federation.run_to_end(run.run_id)
    assert kept_models(federation, run) == [0, 4, 8]
    federation.restart()
    assert kept_models(federation, federation.coordinator.get_run(run.run_id)) == [0, 4, 8]


def test_every_nth_rounds_model_is_kept(federation: LocalFederation) -> None:
    run = whole(federation, keep_every=3)
    assert kept_models(federation, run) == [0, 3, 4, 6, 8]
    federation.restart()
    assert kept_models(federation, federation.coordinator.get_run(run.run_id)) == [0, 3, 4, 6, 8]


@pytest.mark.parametrize("restarts", [(), (3, 5), range(1, 8)])
def test_a_run_that_gets_no_better_ends_early_wherever_the_aggregator_is_killed(
    federation: LocalFederation, restarts: Sequence[int]
) -> None:
    created, restarted = federation.create("fedplcc", run={"rounds": len(HITS), "patience": 2}), set[int]()
    for _ in range(100):
        run = federation.coordinator.get_run(created.run_id)
        if run.status.is_final:
            break
        if run.round_number in restarts and run.round_number not in restarted:
            restarted.add(run.round_number)
            federation.restart()
        federation.step()
    assert (run.status, run.round_number) == (RunStatus.COMPLETED, 6)
    assert run.reason == StoppedEarly(best_round=4, patience=2)
    assert "no better accuracy on validation images than round 4's in 2 rounds" in sentence_of(run.reason)
    assert best_rounds(federation, run) == [(1, 0.1), (2, 0.4), (4, 0.9)]
    assert federation.store.find_run(run.run_id) == run, "the reason is stored"


def test_one_client_that_validates_of_its_own_accord_ends_no_run_and_leaving_it_out_hinders_no_run_that_validates(
    tmp_path: Path,
) -> None:
    with Frugal(tmp_path, [NumpyClient("ann"), Validating("eve")]) as federation:
        federation.join()
        run = whole(federation, patience=1)
        assert (run.round_number, run.reason) == (len(HITS), None)
        assert federation.coordinator.best_round(run) is None
        assert best_rounds(federation, run) == []
        created = federation.create("fedplcc", run={"rounds": len(HITS), "patience": 2}, data={"validation_every": 5})
        assert federation.run_to_end(created.run_id).reason == StoppedEarly(best_round=4, patience=2)


def test_where_one_client_reports_alone_it_ends_no_run_and_chooses_no_round(federation: LocalFederation) -> None:
    run = whole(federation, patience=1, cohort_size=1)
    assert (run.round_number, run.reason, federation.coordinator.best_round(run)) == (len(HITS), None, None)
    assert best_rounds(federation, run) == []


def test_a_run_of_one_client_validates_on_the_images_of_this_client(tmp_path: Path) -> None:
    with Frugal(tmp_path, [Validating("ann")]) as federation:
        federation.join()
        run = whole(federation, patience=2)
        assert (run.reason, federation.coordinator.best_round(run)) == (StoppedEarly(best_round=4, patience=2), 4)


def test_a_run_ends_early_only_in_a_round_that_is_evaluated(federation: LocalFederation) -> None:
    seldom = {"every": 2, "last": 1}
    run = federation.run_to_end(
        federation.create("fedplcc", run={"rounds": 8, "patience": 3}, evaluation=seldom).run_id
    )
    assert best_rounds(federation, run) == [(2, 0.4), (4, 0.9)]
    assert run.round_number == 8, "rounds 5 and 7 are not evaluated, and round 6 is only two after the best one"
    run = federation.run_to_end(
        federation.create("fedplcc", run={"rounds": 8, "patience": 2}, evaluation=seldom).run_id
    )
    assert (run.round_number, run.reason) == (6, StoppedEarly(best_round=4, patience=2))
    run = federation.run_to_end(
        federation.create("fedplcc", run={"rounds": 8, "patience": 1}, evaluation=seldom).run_id
    )
    assert (run.round_number, run.reason) == (6, StoppedEarly(best_round=4, patience=1)), "the first that can be better"


def test_without_validation_images_nothing_is_the_best_and_nothing_ends_early(tmp_path: Path) -> None:
    with Frugal(tmp_path, [NumpyClient("ann"), NumpyClient("bob")]) as federation:
        federation.join()
        run = federation.run_to_end(federation.create("fedavg", run={"rounds": 5, "patience": 1}).run_id)
        assert run.round_number == 5
        assert federation.coordinator.best_round(run) is None
        assert "accuracy_validation" not in json.loads(federation.metrics_lines(run.run_id)[-1])
        with pytest.raises(RoundNotFound, match="was validated"):
            federation.coordinator.artifact(run.run_id, BEST, "model")


class Uneven(NumpyClient):
    """A client whose model says the common class ever more often, on test and on validation images."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        report = super().evaluation(task, model)
        rare = max(0, 6 - 2 * task.round)
        right = (min(40 + 10 * task.round, 90), rare, 0)
        counts = [EvaluationCounts(name, "global", right, (90, 9, 0)) for name in ("test", "validation")]
        return replace(report, counts=tuple(counts))


def test_where_classes_are_uneven_the_best_round_is_that_of_the_best_balanced_accuracy(tmp_path: Path) -> None:
    with LocalFederation(tmp_path, [Uneven("ann"), Uneven("bob")]) as federation:
        federation.join()
        run = federation.run_to_end(federation.create("fedavg", run={"rounds": 8, "patience": 5}).run_id)
        assert federation.coordinator.best_round(run) == 1, "accuracy itself rises to the end"
        (best,) = federation.events(run.run_id, "best_round")
        assert best.data == {"accuracy": pytest.approx((50 / 90 + 4 / 9) / 2), "score": "balanced_accuracy"}
        assert run.reason == StoppedEarly(best_round=1, patience=5)
        warnings = federation.coordinator.warnings(run)
        (found,) = [each for each in warnings if each.kind is RunWarningKind.CLASSES_UNFOUND]
        assert "is never found" in found.sentence
        (listed,) = federation.store.find_runs(RunQuery(limit=10)).runs
        assert listed.score == "balanced_accuracy"
        assert listed.mean_accuracy == pytest.approx(0.5)


def test_the_best_model_is_kept_where_a_later_round_has_another_score(tmp_path: Path) -> None:
    with Frugal(tmp_path, [Uneven("ann"), Validating("bob")]) as federation:
        federation.join()
        left = federation.create(
            "fedavg", run={"rounds": 6}, data={"validation_every": 5}, membership={"ann": "-2"}
        ).run_id
        while not (run := federation.coordinator.get_run(left)).status.is_final:
            federation.step()
            federation.coordinator.garbage_collection.collect()
        assert federation.coordinator.best_round(run) == 2, "by balanced accuracy, which later rounds have not"
        assert kept_models(federation, run) == [0, 2, 6]


class Hopeless(NumpyClient):
    """A client whose validation images no model names."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        counts = EvaluationCounts("validation", "global", (0, 0, 0), (10, 0, 0))
        report = super().evaluation(task, model)
        return replace(report, counts=(*report.counts, counts))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_round_is_no_better_for_a_hard_domain_that_is_away(tmp_path: Path, restarts: bool) -> None:
    with Frugal(tmp_path, [Validating("ann"), Validating("bob"), Hopeless("eve")]) as federation:
        federation.join()
        created = federation.create("fedavg", run={"rounds": 3}, membership={"eve": "-2"})
        while not (run := federation.coordinator.get_run(created.run_id)).status.is_final:
            if restarts and run.round_number == 3:
                federation.restart()
            federation.step()
        assert [number for number, _ in best_rounds(federation, run)] == [1, 2], (
            "round 3 has 2 hits after 4, and a mean of 20%"
        )


def test_rounds_are_compared_by_the_score_of_the_first_that_was_validated() -> None:
    plain = {"round": 1, "accuracy_validation": {"a": 0.5, "mean": 0.5}}
    both = {
        "round": 2,
        "accuracy_validation": {"a": 0.4, "mean": 0.4},
        "balanced_accuracy_validation": {"a": 0.9, "mean": 0.9},
    }
    assert best_of_lines([plain, both]) == Best(1, 0.5)
    lone = {**plain, "round": 3, "accuracy_validation": {"a": 1.0, "mean": 1.0}}
    assert best_of_lines([both, lone]) == Best(2, 0.9, "balanced_accuracy")
    assert best_of_lines([{"round": 1}]) is None
    other = {"round": 4, "accuracy_validation": {"a": 0.4, "b": 0.9, "mean": 0.65}}
    assert best_of_lines([plain, other]) == Best(1, 0.5), "by the domain that both have"
