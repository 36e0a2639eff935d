"""`fedplcc doctor`, `replay`, `backup` and `restore` on a state directory from which a run was deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedplcc.aggregator.store.blobs.files import BlobFiles
from fedplcc.command.all_commands import app
from fedplcc.shared.run_lists import LabelChange, RunQuery, RunShow
from tests.support.federation.in_process import LocalFederation


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, str, str]:
    """A state directory, a run that was deleted from it, and one that is there."""
    state = tmp_path / "state"
    with LocalFederation.small(state) as federation:
        federation.join()
        gone = federation.run_to_end(federation.create("fedplcc", run={"rounds": 4}).run_id).run_id
        kept = federation.run_to_end(federation.create("fedplcc", run={"rounds": 2}).run_id).run_id
        federation.coordinator.labels.change(kept, LabelChange(tags=("paper",), notes="a note"))
        federation.coordinator.delete_run(gone)
        federation.coordinator.forget_client("bob")
        federation.coordinator.garbage_collection.collect()
    return state, gone, kept


def test_the_doctor_finds_nothing_wrong(made: tuple[Path, str, str]) -> None:
    answer = command("doctor", made[0])
    assert answer.exit_code == 0, answer.output


def test_a_round_of_it_cannot_be_computed_again(made: tuple[Path, str, str]) -> None:
    state, gone, kept = made
    answer = command("state", "audit", state, "--replay", gone, "--round", 2)
    assert answer.exit_code == 1, answer.output
    assert f"run {gone} was deleted" in answer.output
    assert command("state", "audit", state, "--replay", kept, "--round", 2).exit_code == 0


def test_a_backup_has_its_line_and_none_of_its_blobs(made: tuple[Path, str, str], tmp_path: Path) -> None:
    state, gone, kept = made
    assert command("state", "backup", state, tmp_path / "backup").exit_code == 0
    assert command("state", "restore", tmp_path / "backup", tmp_path / "restored").exit_code == 0
    assert dict(BlobFiles(tmp_path / "restored").files()) == dict(BlobFiles(state).files())
    with LocalFederation(tmp_path / "restored", []) as federation:
        labels = federation.coordinator.labels
        assert [run.run_id for run in labels.find_runs(RunQuery(show=RunShow.DELETED)).runs] == [gone]
        assert [run.run_id for run in labels.find_runs(RunQuery(tags=("paper",))).runs] == [kept]
        assert labels.of(kept).notes == "a note"
