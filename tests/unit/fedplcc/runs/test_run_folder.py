"""The folder of a demo or a simulation, in which nobody else works."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.runs.run_folder import RunFolder, claimed_folder
from fedplcc.shared.config.run import FederationFile
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation import tiny_federation


def a_federation(rounds: int = 3) -> FederationFile:
    values = tiny_federation.document(Path("data"))
    return tiny_federation.federation({**values, "run": {**values["run"], "rounds": rounds}})


def begin(folder: RunFolder) -> None:
    """Leave what a committed round leaves: a model beside the database."""
    fail(folder)
    (folder.aggregator_state / "blobs/ab12").write_bytes(b"a model")


def fail(folder: RunFolder) -> None:
    """Leave what a run leaves whose data cannot be read."""
    folder.prepare()
    for name in ("blobs", "incoming", "staging", "initial"):
        (folder.aggregator_state / name).mkdir()
    for name in ("aggregator.sqlite", "aggregator.sqlite-wal", "committed"):
        (folder.aggregator_state / name).write_bytes(b"")


def finish(folder: Path) -> None:
    (folder / "run.json").write_text("{}")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_folder_is_named_after_the_run() -> None:
    with claimed_folder(None, a_federation()) as folder:
        assert folder.path == Path("fedplcc-runs/tiny")
        assert not folder.is_finished
        assert (folder.path / "federation.json").exists()


def test_an_unfinished_run_of_the_same_configuration_is_gone_on_with() -> None:
    with claimed_folder(None, a_federation()) as first:
        pass
    with claimed_folder(None, a_federation()) as second:
        assert second.path == first.path


def test_a_finished_run_or_another_configuration_makes_the_next_folder() -> None:
    with claimed_folder(None, a_federation()) as first:
        finish(first.path)
    with claimed_folder(None, a_federation()) as second:
        assert second.path == Path("fedplcc-runs/tiny-2")
        begin(second)
    with claimed_folder(None, a_federation(rounds=9)) as third:
        assert third.path == Path("fedplcc-runs/tiny-3")
    with claimed_folder(None, a_federation()) as again:
        assert again.path == second.path


def test_a_folder_in_use_makes_the_next_one_and_is_refused_by_name(tmp_path: Path) -> None:
    with claimed_folder(None, a_federation()) as first:
        with claimed_folder(None, a_federation()) as second:
            assert second.path == Path("fedplcc-runs/tiny-2")
        with pytest.raises(InvalidConfig, match="another fedplcc works in"), claimed_folder(first.path, a_federation()):
            pass
    with claimed_folder(first.path, a_federation()) as free_again:
        assert free_again.path == first.path


def test_another_configuration_in_a_named_folder_is_refused(tmp_path: Path) -> None:
    with claimed_folder(tmp_path / "out", a_federation()) as folder:
        begin(folder)
    with (
        pytest.raises(InvalidConfig, match=r"another configuration \(run\.rounds; .*--out"),
        claimed_folder(tmp_path / "out", a_federation(rounds=9)),
    ):
        pass


def test_a_run_of_which_nothing_is_trained_gives_way_to_another_configuration(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with claimed_folder(out, a_federation()) as folder:
        fail(folder)
    with claimed_folder(out, a_federation(rounds=9)) as folder:
        assert [path.name for path in out.iterdir()] == ["federation.json"]
        assert '"rounds":9' in (out / "federation.json").read_text()
        assert not folder.is_finished


@pytest.mark.parametrize("name", ["notes.txt", "run.json", "state/aggregator/blobs/ab12", "state/mine", "logs/a.log"])
def test_a_folder_with_anything_more_than_an_empty_database_is_kept(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with claimed_folder(out, a_federation()) as folder:
        fail(folder)
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_text("")
    with pytest.raises(InvalidConfig, match="another configuration"), claimed_folder(out, a_federation(rounds=9)):
        pass
    (out / name).unlink()
    (out / name).symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(InvalidConfig, match="another configuration"), claimed_folder(out, a_federation(rounds=9)):
        pass
    assert (out / "state/aggregator/aggregator.sqlite").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InvalidConfig, match="no run's"), claimed_folder(tmp_path, a_federation()):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_named_folder_is_finished_when_the_results_are_there_and_the_state_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with claimed_folder(out, a_federation()) as folder:
        folder.prepare()
        finish(out)
    with claimed_folder(out, a_federation()) as folder:
        assert not folder.is_finished  # stopped or failed: the aggregator's state says so
        folder.remove_state()
    with claimed_folder(out, a_federation()) as folder:
        assert folder.is_finished
