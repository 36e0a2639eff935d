"""Deleting runs and forgetting clients: what goes, what stays, and what the answer says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.garbage import collection
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.store.blobs.files import BlobFiles
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.shared.errors import ClientInOpenRun, ClientNotFound, RequestIdReused, RunDeleted, RunIsOpen, RunNotFound
from fedplcc.shared.run_lists import LabelChange, RunQuery, RunShow
from fedplcc.shared.steering import ExtendRun, PauseRun, StopRun
from fedplcc.shared.types import Run
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.builders import an_update


def files(folder: Path) -> dict[str, int]:
    return dict(BlobFiles(folder).files())


def ended(federation: LocalFederation, name: str, *, rounds: int = 2) -> Run:
    """A run of FedPLCC that has ended. Rounds of one number have the same model and updates in all runs."""
    run = federation.coordinator.create_run(name, a_document("fedplcc", run={"rounds": rounds, "name": name}))
    return federation.run_to_end(run.run_id)


def test_a_deleted_run_frees_the_bytes_that_the_answer_says(federation: LocalFederation, folder: Path) -> None:
    kept, gone = ended(federation, "kept"), ended(federation, "gone", rounds=9)
    federation.coordinator.garbage_collection.collect()
    before = files(folder)
    freed_bytes = federation.coordinator.delete_run(gone.run_id)
    after = files(folder)
    assert freed_bytes == sum(before.values()) - sum(after.values()) > 0
    # What the other one keeps is all there, and all that is there is kept.
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == after
    assert federation.coordinator.artifact(kept.run_id, -1, "model")


def test_a_run_that_begins_with_a_deleted_runs_model_keeps_it(federation: LocalFederation, folder: Path) -> None:
    first = ended(federation, "first")
    assert first.model is not None
    document = a_document("fedplcc", run={"rounds": 1, "name": "second", "initial_model": f"run:{first.run_id}"})
    second = federation.coordinator.create_run("second", document)
    federation.coordinator.delete_run(first.run_id)
    assert first.model.sha256 in files(folder)
    federation.run_to_end(second.run_id)
    federation.coordinator.garbage_collection.collect()
    assert first.model.sha256 in files(folder)


def test_who_has_just_read_a_run_that_is_deleted_gets_what_it_was(federation: LocalFederation) -> None:
    run = ended(federation, "one")
    federation.start_again()
    federation.coordinator.delete_run(run.run_id)
    assert federation.coordinator.manifest(run)["run_id"] == run.run_id


def test_a_deleted_run_is_gone_for_every_call_but_its_line(federation: LocalFederation) -> None:
    run = ended(federation, "gone")
    federation.coordinator.labels.change(run.run_id, LabelChange(tags=("paper",), notes="for the appendix"))
    federation.coordinator.delete_run(run.run_id)
    coordinator = federation.coordinator
    for call in (
        coordinator.get_run,
        coordinator.list_rounds,
        coordinator.list_evaluations,
        coordinator.has_ended,
        coordinator.delete_run,
        lambda run_id: coordinator.steer(run_id, PauseRun()),
        lambda run_id: coordinator.steer(run_id, StopRun()),
        lambda run_id: coordinator.artifact(run_id, -1, "model"),
        lambda run_id: coordinator.labels.change(run_id, LabelChange(notes="x")),
        lambda run_id: coordinator.prototype_maps.of(run_id, -1),
        lambda _run_id: coordinator.create_run("gone", a_document("fedplcc", run={"rounds": 2, "name": "gone"})),
    ):
        with pytest.raises(RunDeleted):
            call(run.run_id)
    assert coordinator.list_runs(limit=9) == []
    (line,) = coordinator.labels.find_runs(RunQuery(show=RunShow.ALL)).runs
    assert (line.run_id, line.name, line.status, line.is_deleted, line.tags) == (
        run.run_id,
        "gone",
        run.status,
        True,
        ("paper",),
    )
    assert (line.round, line.total_rounds, line.num_clients) == (2, 2, 2)
    assert federation.events("", "run_deleted")[0].data == {"name": "gone", "status": "completed"}
    with pytest.raises(RequestIdReused):
        coordinator.create_run("gone", a_document("fedavg"))


def test_only_runs_that_have_ended_can_be_deleted(federation: LocalFederation) -> None:
    run = federation.create()
    with pytest.raises(RunIsOpen, match="stop it first"):
        federation.coordinator.delete_run(run.run_id)
    with pytest.raises(RunNotFound) as caught:
        federation.coordinator.delete_run("nothing")
    assert not isinstance(caught.value, RunDeleted)
    federation.coordinator.steer(run.run_id, StopRun())
    federation.run_to_end(run.run_id)
    federation.coordinator.delete_run(run.run_id)


def test_a_run_is_deleted_just_after_it_has_ended_and_just_after_a_start(
    federation: LocalFederation, folder: Path
) -> None:
    """Nothing has been collected yet: what the run kept is read then."""
    run = ended(federation, "gone")
    before = sum(files(folder).values())
    assert federation.coordinator.delete_run(run.run_id) == before - sum(files(folder).values()) > 0
    second = ended(federation, "second")
    federation.restart()
    before = sum(files(folder).values())
    assert federation.coordinator.delete_run(second.run_id) == before - sum(files(folder).values()) > 0
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == {}


def test_a_restart_finishes_a_deletion(
    federation: LocalFederation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = ended(federation, "gone", rounds=9), ended(federation, "kept")

    def fails(*_arguments: object) -> int:
        raise RuntimeError("the process ends here")

    monkeypatch.setattr(federation.coordinator.garbage_collection, "_remove_blobs_of", fails)
    with pytest.raises(RuntimeError):
        federation.coordinator.delete_run(run.run_id)
    assert federation.store.deleted_runs(with_rows=True) == [run.run_id]
    federation.restart()
    federation.coordinator.garbage_collection.collect()
    assert federation.store.deleted_runs(with_rows=True) == []
    left = set(files(folder))
    federation.coordinator.delete_run(other.run_id)
    assert left
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == {}


def test_a_deletion_does_not_wait_for_all_runs_to_be_read(
    federation: LocalFederation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just after a start it is not known what others keep: the blobs go once it is."""
    runs = [ended(federation, f"run{number}", rounds=2 + number) for number in range(4)]
    monkeypatch.setattr(collection, "MOST_READING_S", -1.0)
    for run in runs[:3]:
        federation.restart()
        before = files(folder)
        freed_bytes = federation.coordinator.delete_run(run.run_id)
        assert freed_bytes == sum(before.values()) - sum(files(folder).values())
        assert run is not runs[0] or freed_bytes == 0
        assert federation.store.deleted_runs(with_rows=True) == []
        federation.coordinator.garbage_collection.collect()
        assert federation.coordinator.artifact(runs[3].run_id, -1, "model")
    kept = files(folder)
    federation.restart()
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == kept
    federation.coordinator.delete_run(runs[3].run_id)
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == {}


def test_a_backup_makes_the_blobs_wait(federation: LocalFederation, folder: Path) -> None:
    run = ended(federation, "gone")
    federation.coordinator.garbage_collection.collect()
    before = files(folder)
    with no_collection(folder):
        assert federation.coordinator.delete_run(run.run_id) == 0
        assert files(folder) == before
    federation.coordinator.garbage_collection.collect()
    assert files(folder) == {}


def test_many_deletions_leave_what_the_others_need(folder: Path) -> None:
    """Runs share models in changing ways; each deletion frees what no other one keeps, and nothing else."""
    folder.mkdir(exist_ok=True)
    with LocalFederation(folder, map(NumpyClient, ("ann", "bob"))) as federation:
        federation.keep = Keep(models=1, prototypes=1, updates=1)
        federation.start_again()
        federation.join()
        runs = [ended(federation, f"run{number}", rounds=1 + 3 * number % 7) for number in range(8)]
        for number, run in enumerate(runs):
            if number == 4:
                federation.restart()
            before = sum(files(folder).values())
            freed_bytes = federation.coordinator.delete_run(run.run_id)
            assert freed_bytes == before - sum(files(folder).values())
            for other in runs[number + 1 :]:
                assert federation.coordinator.artifact(other.run_id, -1, "model")
                assert federation.coordinator.artifact(other.run_id, 0, "model")
        federation.coordinator.garbage_collection.collect()
        assert files(folder) == {}


# Clients


def test_a_forgotten_client_is_unknown_until_it_joins_again(federation: LocalFederation) -> None:
    run = ended(federation, "past")
    forgotten = federation.coordinator.forget_client("bob")
    assert forgotten.client_id == "bob"
    assert forgotten.is_connected
    assert [client.client_id for client in federation.coordinator.list_clients()] == ["ann"]
    assert not any(federation.store.has_stored("bob", name) for name, _size in federation.store.list_blobs())
    assert {update.client_id for _number, update in federation.store.list_updates(run.run_id)} == {"ann", "bob"}
    with pytest.raises(ClientNotFound):
        federation.coordinator.forget_client("bob")
    assert federation.metric("clients", state="registered") == 1
    federation.join()
    assert [client.client_id for client in federation.coordinator.list_clients()] == ["ann", "bob"]
    types = [event.type for event in federation.events() if event.client_id == "bob" and not event.run_id]
    assert types == ["client_joined", "client_forgotten", "client_joined"]


def test_a_client_of_an_open_run_cannot_be_forgotten(federation: LocalFederation) -> None:
    run = federation.create()
    with pytest.raises(ClientInOpenRun, match=run.run_id) as caught:
        federation.coordinator.forget_client("ann")
    assert caught.value.metadata["run_id"] == run.run_id
    federation.coordinator.steer(run.run_id, StopRun())
    federation.run_to_end(run.run_id)
    federation.coordinator.forget_client("ann")


def test_a_run_that_went_on_after_its_end_frees_all_that_it_kept(federation: LocalFederation, folder: Path) -> None:
    run = ended(federation, "longer")
    federation.coordinator.garbage_collection.collect()
    federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))
    federation.run_to_end(run.run_id)
    federation.coordinator.garbage_collection.collect()
    before = sum(files(folder).values())
    assert federation.coordinator.delete_run(run.run_id) == before - sum(files(folder).values()) > 0


def test_a_deleted_run_gives_its_rows_room_back(federation: LocalFederation, folder: Path) -> None:
    gone = ended(federation, "gone")
    losses = {f"term-{number}" + "x" * 1000: 1.0 for number in range(100)}
    with federation.store.transaction() as transaction:
        for number in range(2, 42):
            committed = replace(an_update(), losses=losses)
            transaction.add_update(gone.run_id, 1, replace(committed, client_id=f"client-{number}"))
    before = database_bytes(folder)
    federation.coordinator.delete_run(gone.run_id)
    assert database_bytes(folder) < before - 3_000_000


def database_bytes(folder: Path) -> int:
    """The size of the database once its log is written back, as it is after a while."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in folder.glob("aggregator.sqlite*"))
