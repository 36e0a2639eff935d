"""Tags, notes and archive of runs, and lists of runs by filters."""

from __future__ import annotations

import json

import pytest

from fedplcc.shared.errors import MalformedRequest, RequestIdReused, RunIsOpen, RunNotFound
from fedplcc.shared.run_lists import LabelChange, RunQuery, RunShow
from fedplcc.shared.steering import PauseRun
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document


def test_tags_and_notes_are_kept_over_a_restart(federation: LocalFederation) -> None:
    run = federation.create()
    labels = federation.coordinator.labels
    before = federation.coordinator.get_run(run.run_id)
    assert labels.change(run.run_id, LabelChange(tags=("b", "a", "b"), notes="two\nlines")) == before
    labels.change(run.run_id, LabelChange(notes="one line"))
    federation.restart()
    found = federation.coordinator.labels.of(run.run_id)
    assert (found.tags, found.notes, found.is_archived) == (("a", "b"), "one line", False)
    federation.coordinator.labels.change(run.run_id, LabelChange(tags=()))
    assert federation.coordinator.labels.of(run.run_id).tags == ()


def test_a_change_is_an_event_and_what_is_so_already_is_none(federation: LocalFederation) -> None:
    run = federation.create()
    for _ in range(2):
        federation.coordinator.labels.change(run.run_id, LabelChange(tags=("a",)))
    (event,) = federation.events(run.run_id, "run_labelled")
    assert event.data == {"tags": ["a"], "is_archived": False}


def test_a_request_counts_once(federation: LocalFederation) -> None:
    run = federation.create()
    labels = federation.coordinator.labels
    labels.change(run.run_id, LabelChange(tags=("a",)), request_id="r1")
    labels.change(run.run_id, LabelChange(tags=("b",)), request_id="r2")
    labels.change(run.run_id, LabelChange(tags=("a",)), request_id="r1")
    assert labels.of(run.run_id).tags == ("b",)
    with pytest.raises(RequestIdReused):
        labels.change(run.run_id, LabelChange(tags=("c",)), request_id="r2")
    with pytest.raises(RequestIdReused):
        federation.coordinator.steer(run.run_id, PauseRun(), request_id="r2")
    with pytest.raises(MalformedRequest):
        labels.change(run.run_id, LabelChange(notes="x"), request_id="r" * 129)
    with pytest.raises(RunNotFound):
        labels.change("nothing", LabelChange(notes="x"))


def test_only_a_run_that_has_ended_can_be_archived(federation: LocalFederation) -> None:
    run = federation.create()
    labels = federation.coordinator.labels
    with pytest.raises(RunIsOpen):
        labels.change(run.run_id, LabelChange(is_archived=True))
    federation.run_to_end(run.run_id)
    labels.change(run.run_id, LabelChange(is_archived=True))

    def shown(show: RunShow) -> list[str]:
        return [each.run_id for each in labels.find_runs(RunQuery(show=show)).runs]

    assert (shown(RunShow.CURRENT), shown(RunShow.ARCHIVED), shown(RunShow.ALL)) == ([], [run.run_id], [run.run_id])
    labels.change(run.run_id, LabelChange(is_archived=False))
    assert shown(RunShow.CURRENT) == [run.run_id]


def test_accuracy_is_that_of_the_last_evaluated_round(federation: LocalFederation) -> None:
    document = a_document("fedplcc", run={"rounds": 9}, evaluation={"every": 3, "last": 1})
    run = federation.coordinator.create_run("one", document)
    while federation.coordinator.get_run(run.run_id).round_number < 6:
        federation.step()
    lines = [json.loads(line)["accuracy"] for line in federation.metrics_lines(run.run_id) if line]
    assert lines[3:] == [None, None]
    (line,) = federation.coordinator.labels.find_runs(RunQuery()).runs
    assert (line.mean_accuracy, line.worst_accuracy) == (lines[2]["mean"], lines[2]["worst"])
    assert lines[2][line.worst_domain] == line.worst_accuracy
