"""Tags, notes and archive of runs, and lists of runs by filters."""

from __future__ import annotations

import pytest

from fedplcc.shared.errors import MalformedRequest, RequestIdReused, RunIsOpen, RunNotFound
from fedplcc.shared.run_lists import LabelChange, RunQuery, RunShow
from fedplcc.shared.steering import PauseRun
from tests.support.federation.in_process import LocalFederation


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
