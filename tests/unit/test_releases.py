"""State and run folders of released versions (tests/golden/VERSION) are read by this one, and what is open goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fedplcc.aggregator.store.database.row_check import damaged_rows
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.models.trained_model import read_trained_model
from fedplcc.runs.artifacts import read_record
from fedplcc.runs.local_runs import find_runs
from fedplcc.runs.run_folder import claimed_folder
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.config.tables.run_tables import VERSION as CONFIGURED
from fedplcc.shared.identity.audit_chain import verify
from fedplcc.shared.types import Run, RunStatus
from fedplcc.shared.version import VERSION
from fedplcc.state.replay import replay
from tests.support.federation import tiny_federation
from tests.support.federation.in_process import LocalFederation
from tests.support.records import release

RELEASES = sorted(path for path in release.GOLDEN.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def released(request: pytest.FixtureRequest) -> Path:
    """Folder with what a version wrote."""
    found: Path = request.param
    return found


def runs_by_name(store: SqlStore) -> dict[str, Run]:
    return {run.name: run for run in store.list_runs(limit=9)}


def test_there_are_data_of_this_minor_version() -> None:
    minor = ".".join(VERSION.split(".")[:2])
    assert [path.name for path in RELEASES if path.name.startswith(f"{minor}.")], "run tests.support.records.release"
    assert minor == CONFIGURED


def test_every_row_of_a_state_is_read(released: Path, tmp_path: Path) -> None:
    release.read_state(released, tmp_path)
    store = SqlStore.in_folder(tmp_path)
    try:
        with store.database.engine.connect() as connection:
            assert list(damaged_rows(connection)) == []
        assert {name: run.status for name, run in runs_by_name(store).items()} == {
            release.DONE: RunStatus.COMPLETED,
            release.WAITING: RunStatus.RUNNING,
            release.PENDING: RunStatus.PENDING,
        }
        assert store.find_labels(runs_by_name(store)[release.DONE].run_id).notes == "für später"
        assert len(store.deleted_runs()) == 1
        assert store.find_invitation("i1") is not None
        assert store.find_certificate("0a") is not None
        assert store.find_key("0a") is not None
        assert verify(store.list_audit()).damages == ()
    finally:
        store.close()


def test_an_open_run_goes_on_to_the_bytes_that_it_would_have_had(released: Path, tmp_path: Path) -> None:
    metrics = release.read_state(released, tmp_path)
    with LocalFederation(tmp_path, release.clients()) as federation:
        runs = runs_by_name(federation.store)
        federation.join()
        assert federation.run_to_end(runs[release.WAITING].run_id).status is RunStatus.COMPLETED
        for name in (release.WAITING, release.DONE):
            assert [json.loads(line) for line in federation.metrics_lines(runs[name].run_id)] == metrics[name]


def test_a_completed_round_is_computed_again_to_its_bytes(released: Path, tmp_path: Path) -> None:
    release.read_state(released, tmp_path)
    store = SqlStore.in_folder(tmp_path)
    run_id = runs_by_name(store)[release.DONE].run_id
    store.close()
    assert replay(tmp_path, run_id, 2).is_equal


def test_the_folder_of_a_run_is_read_and_known_as_the_run_of_its_configuration(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = released / "run"
    record = read_record(folder)
    assert len(record.metrics_lines) == 3
    manifest = json.loads((folder / "run.json").read_text())
    assert parse_run_config(manifest["config"]).hash == manifest["config_hash"]
    (found,) = find_runs([folder]).runs
    assert (found.round, found.has_ended) == (3, True)
    trained = read_trained_model(folder, device="cpu")
    assert trained.round == 3
    monkeypatch.chdir(tmp_path)
    document = release.run_document()
    document["run"]["version"] = manifest["config"]["run"]["version"]
    with claimed_folder(folder, tiny_federation.federation(document)) as claimed:
        assert claimed.is_finished
