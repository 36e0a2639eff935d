"""The collection of garbage: what is needed stays whatever happens meanwhile, and the rest goes."""

from __future__ import annotations

import functools
import os
import threading
import time
from pathlib import Path

import pytest

from fedplcc.aggregator.garbage.collection import DAY_S
from fedplcc.aggregator.garbage.rules import (
    Keep,
    KeptRounds,
    kept_rounds,
    needed_blobs,
    prototypes_of,
)
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import open_store
from fedplcc.shared.errors import BlobNotFound, StoreUnavailable
from fedplcc.shared.steering import PauseRun
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, RoundPhase, Run, RunStatus, Task
from fedplcc.state.replay import replay
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.hosts.failing_disk import Disk, Killed
from tests.support.records.builders import a_blob, a_round, a_run, an_update
from tests.unit.aggregator.test_crash_recovery import assert_named_blobs_are_whole, named_blobs


def assert_named_blobs_are_whole_now(federation: LocalFederation, folder: Path) -> None:
    with no_collection(folder):
        assert_named_blobs_are_whole(folder)


COLLECTING, EVALUATING, COMMITTED = RoundPhase.COLLECTING, RoundPhase.EVALUATING, RoundPhase.COMMITTED


# What is needed


@pytest.mark.parametrize(
    ("phase", "status", "keep", "expected"),
    [
        (COLLECTING, RunStatus.RUNNING, Keep(models=3, prototypes=0, updates=1), KeptRounds(7, 9, 11, 10)),
        (COMMITTED, RunStatus.RUNNING, Keep(models=3, prototypes=1, updates=1), KeptRounds(8, 10, 11, 10)),
        (COMMITTED, RunStatus.COMPLETED, Keep(models=1, prototypes=5, updates=0), KeptRounds(10, 11, 11, 6)),
        (COMMITTED, RunStatus.COMPLETED, Keep(models=1, prototypes=11, updates=2), KeptRounds(8, 9, 11, 0)),
        (EVALUATING, RunStatus.PAUSED, Keep(models=2, prototypes=3, updates=0), KeptRounds(8, 10, 11, 7)),
        (EVALUATING, RunStatus.STOPPING, Keep(models=2, prototypes=3, updates=0), KeptRounds(8, 10, 11, 7)),
        (EVALUATING, RunStatus.STOPPED, Keep(models=2, prototypes=3, updates=0), KeptRounds(8, 10, 10, 7)),
        (COLLECTING, RunStatus.RUNNING, Keep(models=None, prototypes=4, updates=0), KeptRounds(0, 10, 11, 6)),
        (COLLECTING, RunStatus.RUNNING, Keep(models=99, prototypes=None, updates=99), KeptRounds(0, 0, 11, 0)),
    ],
)
def test_last_rounds_stay_and_what_a_run_that_ended_left_open_does_not(
    phase: RoundPhase, status: RunStatus, keep: Keep, expected: KeptRounds
) -> None:
    assert kept_rounds(a_run(status, current_round=a_round(10, phase)), keep) == expected


def test_a_run_without_rounds_needs_what_it_begins_with() -> None:
    run = a_run(RunStatus.PENDING, current_round=None)
    assert run.model is not None
    assert run.prototypes is not None
    assert needed_blobs(run, {}, Keep()) == {run.model.sha256, run.prototypes.sha256}


def test_what_is_needed_of_a_run_is_all_that_and_nothing_else() -> None:
    rounds = {}
    for number in range(6):
        updates = {"ann": an_update("ann", content=f"round {number}")}
        made = {} if number == 5 else {"model": a_blob(f"model {number}"), "prototypes": a_blob(f"prototypes {number}")}
        rounds[number] = a_round(number, COLLECTING if number == 5 else COMMITTED, updates=updates, **made)
    run = a_run(current_round=rounds[5], model=a_blob("model 4"), prototypes=a_blob("prototypes 4"))
    texts = [f"{kind} {number}" for kind in ("model", "prototypes") for number in (0, 3, 4)]
    expected = {a_blob(text).sha256 for text in texts}
    expected |= {blob.sha256 for number in (4, 5) for blob in rounds[number].updates["ann"].payload.blobs}
    assert needed_blobs(run, rounds, Keep(models=2, updates=1)) == expected


# In an aggregator


class Tidy(LocalFederation):
    """A federation whose aggregator collects after every step, and keeps as little as can be."""

    keep = Keep(models=1, prototypes=0, updates=0)
    disk: Disk | None = None
    """If set, it is noted which of its steps are those of collections."""

    def step(self, order: object = None) -> bool:
        moved = super().step()
        before = len(self.disk.steps) if self.disk else 0
        self.coordinator.garbage_collection.collect()
        if self.disk:
            self.steps_of_collections += range(before + 1, len(self.disk.steps) + 1)
        return moved

    @functools.cached_property
    def steps_of_collections(self) -> list[int]:
        return []


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("blobs/*/*")}


def results_of(federation: LocalFederation, run: Run, *numbers: int) -> set[str]:
    """Models and prototypes of some rounds."""
    found = [federation.store.find_round(run.run_id, number) for number in numbers]
    blobs = [blob for each in found if each is not None for blob in (each.model, each.prototypes)]
    return {blob.sha256 for blob in blobs if blob is not None}


def test_a_run_with_collections_ends_as_one_without_and_leaves_what_is_kept(folder: Path) -> None:
    with LocalFederation.small(folder / "untidy") as untidy:
        lines = untidy.metrics_lines(untidy.whole_run(rounds=4).run_id)
        everything = len(files(folder / "untidy"))
    with Tidy.small(folder / "tidy") as tidy:
        run = tidy.whole_run(rounds=4)
        assert run.status is RunStatus.COMPLETED
        assert tidy.metrics_lines(run.run_id) == lines
        assert files(folder / "tidy") == results_of(tidy, run, 0, 4) == named_blobs(folder / "tidy").keys()
        assert everything > 5 * len(files(folder / "tidy"))
        assert not any(tidy.store.has_stored("ann", name) for name in files(folder / "tidy") - results_of(tidy, run, 0))
        assert tidy.metric("blobs_collected_total") == everything - 4
        assert (tidy.metric("collected_bytes_total") or 0) > 0


def prototypes_of_rounds(federation: LocalFederation, run: Run, *numbers: int) -> set[str]:
    """Global and local prototypes of some rounds."""
    found = [federation.store.find_round(run.run_id, number) for number in numbers]
    return set().union(*(prototypes_of(each) for each in found if each is not None))


def test_the_default_keeps_the_first_and_the_last_models_one_round_s_updates_and_many_rounds_prototypes(
    folder: Path,
) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run(rounds=8)
        federation.coordinator.garbage_collection.collect()
        last = federation.whole_round(run.run_id, 8)
        updates = {blob.sha256 for update in last.updates.values() for blob in update.payload.blobs}
        prototypes = prototypes_of_rounds(federation, run, *range(9))
        assert files(folder) == results_of(federation, run, 0, 4, 5, 6, 7, 8) | updates | prototypes
        for number in (0, 4, 8, -1):
            _blob, path = federation.coordinator.artifact(run.run_id, number, "model")
            assert path.is_file()
        with pytest.raises(BlobNotFound, match=r"the model of round 3 of run .* was collected: .* keep_models"):
            federation.coordinator.artifact(run.run_id, 3, "model")


def test_a_smaller_setting_takes_away_what_a_larger_one_kept_and_replay_still_works(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run(rounds=8)
        before: set[str] | None = None
        for prototypes in (None, 5, 3, 0):
            federation.keep = Keep(models=2, prototypes=prototypes, updates=2)
            federation.restart()
            federation.coordinator.garbage_collection.collect()
            left = files(folder)
            assert before is None or left < before
            first = 0 if prototypes is None else 9 - prototypes
            assert prototypes_of_rounds(federation, run, *range(first, 9)) <= left
            gone = prototypes_of_rounds(federation, run, *range(1, min(first, 6)))
            assert not gone & left
            assert replay(folder, run.run_id, 7).is_equal
            assert replay(folder, run.run_id, 8).is_equal
            before = left


def test_a_run_that_goes_on_from_another_s_model_keeps_it_when_that_one_s_is_collected(folder: Path) -> None:
    with Tidy.small(folder) as federation:
        federation.join()
        first = federation.create()
        federation.step()
        model = federation.coordinator.get_run(first.run_id).model
        second = federation.create(run={"initial_model": f"run:{first.run_id}@0", "rounds": 9})
        federation.coordinator.steer(first.run_id, PauseRun(now=True))
        for _ in range(12):
            federation.step()
        assert model is not None
        assert federation.coordinator.get_run(second.run_id).round_number > 3
        assert model.sha256 in files(folder)


# While others put away and read


def a_task(federation: LocalFederation, client: NumpyClient) -> tuple[Task, dict[BlobRef, bytes]]:
    task, _update, blobs = federation.work(client)
    return task, blobs


def test_an_answer_that_a_blob_is_stored_holds_until_the_commit(folder: Path) -> None:
    class Tidied(LocalFederation):
        keep = Keep(models=1, prototypes=0, updates=0)

    with Tidied.small(folder) as federation:
        ann, transfers = federation.clients["ann"], federation.coordinator.transfers
        federation.whole_run(rounds=2)
        again = federation.coordinator.create_run("again", a_document("fedplcc", run={"rounds": 2}))
        federation.perform(ann, federation.task(ann))
        _task, update, blobs = federation.work(ann)
        names = {blob.sha256 for blob in blobs}
        for blob in blobs:  # the same bytes as in the run before
            assert transfers.upload_status("ann", ann.token, again.run_id, 1, blob) == (blob.size_bytes, True)
        federation.coordinator.garbage_collection.collect()
        assert not names & files(folder)
        federation.coordinator.commit_update("ann", ann.token, again.run_id, 1, update)
        assert names <= files(folder)
        assert federation.run_to_end(again.run_id).status is RunStatus.COMPLETED


def test_a_reader_keeps_its_blob_and_one_that_comes_too_late_is_told(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run(rounds=8)
        blob, path = federation.coordinator.artifact(run.run_id, 2, "model")
        transfers = federation.coordinator.transfers
        with transfers.reading(blob):
            federation.coordinator.garbage_collection.collect()
            assert path.is_file()
        federation.coordinator.garbage_collection.collect()
        assert not path.exists()
        with pytest.raises(BlobNotFound, match="not kept any more"), transfers.reading(blob):
            pass


def test_what_is_collected_while_it_is_asked_for_is_no_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its bytes are sent a blob is looked up and hashed, and a run's end or deletion may free it just then."""
    with LocalFederation.small(folder) as federation:
        run, verified = federation.whole_run(rounds=8), BlobStore.verified_path

        def after_collection(blobs: BlobStore, sha256: str) -> Path:
            federation.coordinator.garbage_collection.collect()
            return verified(blobs, sha256)

        monkeypatch.setattr(BlobStore, "verified_path", after_collection)
        blob, path = federation.coordinator.artifact(run.run_id, 1, "model")
        assert path.is_file()
        assert federation.coordinator.transfers._whole_path(None, blob) == path


def test_commits_of_the_very_bytes_that_are_being_collected_lose_nothing(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.keep = Keep(models=1, prototypes=0, updates=0)
        federation.restart()
        ending, failures = threading.Event(), list[BaseException]()

        def collect() -> None:
            try:
                while not ending.is_set():
                    federation.coordinator.garbage_collection.collect()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=collect)
        thread.start()
        try:
            lines = []
            for number in range(8):
                run = federation.whole_run(rounds=3, request_id=f"request {number}")
                assert run.status is RunStatus.COMPLETED
                lines.append(federation.metrics_lines(run.run_id))
                assert_named_blobs_are_whole_now(federation, folder)
        finally:
            ending.set()
            thread.join()
        assert not failures
        assert all(line == lines[0] for line in lines)


# Crashes and full disks


def steps_of_collections(folder: Path, disk: Disk) -> dict[int, str]:
    """What the collections of a run do to the disk, by the number of the step."""
    with Tidy.small(folder / "steps") as federation:
        assert isinstance(federation, Tidy)
        federation.disk = disk
        disk.revive()
        federation.whole_run(rounds=2)
        return {number: disk.steps[number - 1] for number in federation.steps_of_collections}


def undisturbed(folder: Path) -> list[str]:
    with Tidy.small(folder / "undisturbed") as federation:
        return federation.metrics_lines(federation.whole_run(rounds=2).run_id)


def test_a_crash_between_any_two_steps_loses_nothing_and_leaves_nothing_for_good(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, disk = undisturbed(folder), Disk(monkeypatch)
    steps = steps_of_collections(folder, disk)
    assert set(steps.values()) == {"begin", "committed", "unlink"}
    for step in steps:
        with Tidy.small(folder / str(step)) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                federation.whole_run(rounds=2)
            disk.revive()
            assert_named_blobs_are_whole(folder / str(step))
            federation.restart()
            run = federation.whole_run(rounds=2)
            assert federation.metrics_lines(run.run_id) == lines, f"killed before step {step}"
            federation.coordinator.garbage_collection.collect()
            assert files(folder / str(step)) == results_of(federation, run, 0, 2), f"killed before step {step}"


def test_a_disk_that_fails_in_a_collection_is_told_and_the_next_one_does_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run(rounds=8)
        collection = federation.coordinator.garbage_collection
        disk.fail_at(3)
        with pytest.raises(StoreUnavailable):
            collection.collect()
        assert disk.steps[:3] == ["begin", "committed", "unlink"]
        disk.revive()
        assert collection.is_due()
        collection.collect()
        assert files(folder) == named_blobs(folder).keys() >= results_of(federation, run, 0, 8)


def test_a_file_that_no_row_names_goes_and_a_stranger_s_stays(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        unnamed = federation.coordinator._blobs.put(MODEL, [b"left by a crash"])
        note = folder / "blobs" / unnamed.sha256[:2] / "note.txt"
        note.write_text("what is this?")
        federation.coordinator.garbage_collection.collect()
        assert not federation.coordinator._blobs.path(unnamed.sha256).exists()
        assert note.exists()


# What nobody goes on with


def age(path: Path, days: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many days pass for files that exist now."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + days * DAY_S)


def test_uploads_that_nobody_goes_on_with_expire_and_those_that_go_on_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        federation.create("fedplcc")
        federation.step(["ann"])
        for name in ("ann", "bob"):
            client = federation.clients[name]
            task, blobs = a_task(federation, client)
            assert task.run is not None
            blob, data = next(iter(blobs.items()))
            receiver = federation.coordinator.transfers.begin_upload(
                name, client.token, task.run.run_id, task.round, blob
            )
            assert receiver is not None
            receiver.write(0, data[:10])
            if name == "ann":
                receiver.close()
        going_on = receiver
        assert sorted(path.name for path in folder.glob("incoming/*")) == ["ann", "bob"]
        age(folder, 6.9, monkeypatch)
        assert federation.coordinator.garbage_collection.collect() == 0
        age(folder, 0.2, monkeypatch)
        assert federation.coordinator.garbage_collection.collect() == 10
        assert [path.name for path in folder.glob("incoming/*")] == ["bob"]
        assert going_on is not None
        going_on.close()


def test_a_model_to_begin_with_expires_when_nobody_has_used_it_for_days(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.join()
        used, unused = (to_bytes(NumpyClient("ann").first_model(seed)) for seed in (1, 2))
        for data in (used, unused):
            receiver = present(federation.coordinator.initial_models.begin_upload(blob_ref(MODEL, data), "mine"))
            receiver.write(data)
            receiver.finish()
            receiver.close()
        named = blob_ref(MODEL, used).sha256
        for path in (folder / "initial").iterdir():
            os.utime(path, (0, 0))
        run = federation.create(run={"initial_model": f"sha256:{named}"})
        federation.coordinator.garbage_collection.collect()
        assert {path.name for path in folder.glob("initial/*")} == {named, f"{named}.name"}
        for path in (folder / "initial").iterdir():
            os.utime(path, (0, 0))
        federation.coordinator.garbage_collection.collect()
        assert not list(folder.glob("initial/*"))
        assert named in files(folder), "the run keeps it"
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_crash_while_something_expires_leaves_what_the_next_collection_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    disk = Disk(monkeypatch)
    with LocalFederation.small(folder) as federation:
        federation.join()
        run = federation.create("fedplcc")
        federation.step(["ann"])
        federation.coordinator.garbage_collection.collect()
        ann = federation.clients["ann"]
        task, blobs = a_task(federation, ann)
        for blob, data in blobs.items():
            receiver = federation.coordinator.transfers.begin_upload("ann", ann.token, run.run_id, task.round, blob)
            assert receiver is not None
            receiver.write(0, data[:10])
            receiver.close()
        initial = to_bytes(ann.first_model(9))
        holding = present(federation.coordinator.initial_models.begin_upload(blob_ref(MODEL, initial), "mine"))
        holding.write(initial)
        holding.finish()
        holding.close()
        os.utime(next((folder / "initial").glob("*.name")), (0, 0))
        age(folder, 8, monkeypatch)
        disk.kill_before(step)
        with pytest.raises(Killed):
            federation.coordinator.garbage_collection.collect()
        assert disk.steps[-1] == "unlink"
        disk.revive()
        federation.restart()
        federation.coordinator.garbage_collection.collect()
        assert not list(folder.glob("incoming/*/*"))
        assert not list(folder.glob("initial/*"))
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


# A database that is not there


@pytest.mark.parametrize("loss", ["deleted", "cut to nothing"])
def test_blobs_without_their_database_are_kept_and_the_aggregator_says_what_helps(tmp_path: Path, loss: str) -> None:
    def opened() -> SqlStore:
        return open_store(tmp_path, None, on_lost=pytest.fail)

    opened().close()
    opened().close()
    blob = tmp_path / "blobs" / "ab" / ("ab" * 32)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"a model")
    opened().close()  # as after a crash between a blob and its row
    database = tmp_path / "aggregator.sqlite"
    kept = database.read_bytes()
    if loss == "deleted":
        database.unlink()
    else:
        os.truncate(database, 0)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"aggregator.sqlite is gone or empty, but not .*: restore a backup"):
            opened()
    assert blob.read_bytes() == b"a model"
    database.write_bytes(kept)
    opened().close()
