"""What a client says of its own size is bound to its Join; one that has nearly everything is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.computation.report_checks import FREE_TOTAL, MAX_TOTAL_RATIO, check_totals
from fedplcc.aggregator.rounds.large_shares import large_share
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import Evaluation, RunStatus, Task, TaskKind
from tests.support import of_kind, present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.builders import an_evaluation

HONEST = ("ann", "bob", "cid")


class Inflated(NumpyClient):
    """Reports on its test set as if it were larger."""

    times = 1

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        report = super().evaluation(task, model)
        counts = [
            replace(
                each,
                correct=tuple(self.times * count for count in each.total),
                total=tuple(self.times * count for count in each.total),
            )
            for each in report.counts
        ]
        return replace(report, counts=tuple(counts))


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[LocalFederation]:
    with LocalFederation(tmp_path, [*map(NumpyClient, HONEST), Inflated("eve")]) as federation:
        yield federation


def begun(federation: LocalFederation) -> str:
    federation.join()
    return federation.create("fedavg", run={"rounds": 2, "clients": list(federation.clients)}).run_id


def warning(federation: LocalFederation, run_id: str) -> RunWarning | None:
    found = federation.coordinator.warnings(federation.coordinator.get_run(run_id))
    return next((each for each in found if each.kind is RunWarningKind.SHARE_LARGE), None)


def until_round(federation: LocalFederation, run_id: str, number: int) -> None:
    while federation.coordinator.get_run(run_id).round_number < number:
        assert federation.step()


def test_a_client_with_nearly_all_samples_is_named_after_the_first_round_and_to_the_end(
    federation: LocalFederation,
) -> None:
    federation.clients["eve"].counts = (2**29, 0, 0)
    run_id = begun(federation)
    until_round(federation, run_id, 1)
    assert warning(federation, run_id) is None
    until_round(federation, run_id, 2)
    found = present(warning(federation, run_id))
    assert found.sentence.startswith("100.0% of all samples are eve's in round 1, as it says itself")
    assert not any(name in found.sentence for name in HONEST)
    assert federation.run_to_end(run_id).status is RunStatus.COMPLETED
    found = present(warning(federation, run_id))
    assert found.round == 2
    federation.restart()
    assert warning(federation, run_id) == found


def test_a_client_with_nearly_all_predictions_is_named(federation: LocalFederation) -> None:
    eve = of_kind(Inflated, federation.clients["eve"])
    eve.times = FREE_TOTAL // 30
    run_id = begun(federation)
    until_round(federation, run_id, 2)
    found = present(warning(federation, run_id))
    assert found.sentence.startswith("99.9% of all predictions are eve's in round 1")


def test_the_first_report_is_bound_to_the_samples_that_its_client_came_with(federation: LocalFederation) -> None:
    """Also where it joins again and says that it has more."""
    eve = of_kind(Inflated, federation.clients["eve"])
    eve.times = 2**24
    run_id = begun(federation)
    federation.step(["ann"])
    federation.step()
    assert federation.task(eve).kind is TaskKind.EVALUATE
    for counts in ((5, 3, 4), (2**29, 0, 0)):
        eve.counts = counts
        federation.coordinator.join(eve.record, eve.token)
        with pytest.raises(MalformedUpdate, match=f"has at most {FREE_TOTAL}") as refused:
            federation.perform(eve, federation.task(eve))
        assert refused.value.metadata["check"] == "totals"
    (event,) = federation.events(run_id, "report_refused")
    assert event.client_id == "eve"


def test_who_has_many_samples_may_have_many_test_images() -> None:
    report = an_evaluation("ann")
    big = replace(report.counts[0], total=(MAX_TOTAL_RATIO * 2000,), correct=(0,))
    check_totals(replace(report, counts=(big,)), 2000, None)
    with pytest.raises(MalformedUpdate, match="200000 predictions: a client with 1999 samples has at most 199900"):
        check_totals(replace(report, counts=(big,)), 1999, None)


def test_an_update_has_no_more_samples_of_a_class_than_its_client_said(federation: LocalFederation) -> None:
    run_id = begun(federation)
    federation.step(["ann"])
    eve = federation.clients["eve"]
    task, update, blobs = federation.work(eve)
    with pytest.raises(
        MalformedUpdate, match="12 samples of class 'b': the client said that it has 3 of them"
    ) as refused:
        federation.submit(eve, task, replace(update, class_counts=(0, 12, 0)), blobs)
    assert refused.value.metadata["check"] == "class_counts"
    fewer = replace(update, num_examples=6, class_counts=(3, 2, 1))  # files that cannot be read
    federation.submit(eve, task, fewer, blobs)
    assert federation.coordinator.get_run(run_id).rejections["eve"].count == 1


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ({}, None),
        ({"a": 1, "b": 10**9}, None),  # of two
        ({"a": 1, "b": 1, "c": 18}, None),
        ({"a": 1, "b": 1, "c": 19}, "c"),
        ({"a": 0, "b": 0, "c": 0}, None),
        ({"a": 0, "b": 0, "c": 1}, "c"),
    ],
)
def test_what_a_large_share_is(counts: dict[str, int], named: str | None) -> None:
    found = large_share(counts)
    assert (None if found is None else found[0]) == named
