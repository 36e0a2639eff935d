"""When garbage is collected: what makes a collection due, how it rests, and that its steps leave what the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from fedplcc.aggregator.garbage.rules import (
    Keep,
    all_runs,
    kept_rounds,
    needed_blobs,
    rounds_of,
)
from fedplcc.aggregator.store.blobs.blob_store import BlobStore, Removed
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.sql_statements import statements
from tests.unit.aggregator.coordinator.test_garbage import COMMITTED, files, prototypes_of_rounds, results_of
from tests.unit.aggregator.test_crash_recovery import named_blobs


def test_a_collection_that_is_to_end_does_so_before_its_next_batch(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        federation.whole_run(rounds=8)
        before = files(folder)
        assert federation.coordinator.garbage_collection.collect(lambda: True) == 0
        assert files(folder) == before
        assert federation.coordinator.garbage_collection.is_due()


def test_a_collection_is_due_when_a_round_has_committed_and_rests_after_it(folder: Path) -> None:
    with LocalFederation.small(folder) as federation:
        collection = federation.coordinator.garbage_collection
        assert collection.is_due(), "a former process may have left something"
        collection.collect()
        assert not collection.is_due()
        assert collection.wait_s() > 0
        federation.clock.now += 2
        assert collection.wait_s() == 0
        federation.join()
        federation.create()
        assert not collection.is_due(), "a new run frees nothing"
        federation.step()
        assert collection.is_due(), "round 0 has committed"
        collection.collect()
        federation.clock.now += 3700
        assert collection.is_due(), "uploads have grown old"


class Stepping(LocalFederation):
    """A federation whose aggregator collects by steps alone, once its first scan is over."""

    keep = Keep(models=1, prototypes=0, updates=0)

    def step(self, order: object = None) -> bool:
        moved = super().step()
        collection = self.coordinator.garbage_collection
        while collection.is_due():
            self.clock.now += collection.wait_s()
            collection.step()
        return moved


def all_that_is_needed(federation: LocalFederation) -> set[str]:
    """What the rules say of all runs."""
    keep, needed = federation.keep or Keep(), set[str]()
    for run in all_runs(federation.store):
        needed |= needed_blobs(run, rounds_of(federation.store, run, keep), keep)
        last = kept_rounds(run, keep)
        committed = [each.number for each in federation.store.list_rounds(run.run_id) if each.phase is COMMITTED]
        needed |= prototypes_of_rounds(federation, run, *(n for n in committed if n >= last.prototypes_from))
    return needed


@pytest.mark.parametrize(
    "keep",
    [
        Keep(models=1, prototypes=0, updates=0),
        Keep(models=2, prototypes=3, updates=1),
        Keep(models=1, prototypes=None, updates=1),
    ],
)
def test_steps_leave_exactly_what_the_rules_say_after_every_commit_stop_and_restart(folder: Path, keep: Keep) -> None:
    with Stepping.small(folder) as federation:
        federation.keep = keep
        federation.restart()
        settings: tuple[tuple[str, dict[str, int]], ...] = (
            ("fedplcc", {"proto_staleness": 0}),
            ("fedplcc", {"proto_staleness": 2}),
            ("fedopt", {}),
        )
        for number, (method, hyper) in enumerate(settings):
            document = {**a_document(method, run={"rounds": 6, "seed": number}), "method": hyper}
            run = federation.coordinator.create_run(f"request {number}", document)
            for _ in range(9):
                federation.step()
                assert files(folder) == all_that_is_needed(federation)
            federation.perform(federation.clients["ann"], federation.task(federation.clients["ann"]))
            federation.coordinator.steer(run.run_id, StopRun())
            federation.restart()
            federation.step()
            assert files(folder) == all_that_is_needed(federation)


def test_a_collection_after_a_commit_reads_as_little_beside_many_old_runs_and_rounds_as_beside_none(
    folder: Path,
) -> None:
    counts = []
    with Stepping.small(folder) as federation:
        for number in range(12):
            federation.whole_run(rounds=2, request_id=f"request {number}")
            federation.join()
            document = a_document("fedplcc", run={"seed": number, "rounds": 1})
            federation.coordinator.create_run(f"short {number}", document)
            LocalFederation.step(federation)
            LocalFederation.step(federation)
            with statements(federation.store) as read:
                federation.coordinator.garbage_collection.step()
            counts.append(len(read))
    assert max(counts) <= counts[0], counts


@pytest.mark.parametrize("took_s", [0.02, 600.0])
def test_no_collection_rests_longer_than_a_second_whatever_it_took(
    folder: Path, monkeypatch: pytest.MonkeyPatch, took_s: float
) -> None:
    with LocalFederation.small(folder) as federation:
        federation.whole_run(rounds=2)
        collection, remove = federation.coordinator.garbage_collection, BlobStore.remove

        def slow(blobs: BlobStore, names: list[str]) -> Removed:
            federation.clock.now += took_s
            return remove(blobs, names)

        monkeypatch.setattr(BlobStore, "remove", slow)
        collection.step()
        assert collection.wait_s() <= 1.0
        assert collection.wait_s() >= min(9 * took_s, 0.05)


def test_a_backup_holds_up_no_scan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is counted and told, however busy the machine, though nothing of it may be removed."""
    monkeypatch.setattr("fedplcc.aggregator.garbage.collection.SLICE_S", 0.0)  # one file a step
    with LocalFederation.small(folder) as federation:
        federation.whole_run(rounds=4)
        before = files(folder)
        federation.restart()
        collection, rests = federation.coordinator.garbage_collection, list[float]()
        with no_collection(folder):
            while not rests or rests[-1] <= 1.0:
                assert len(rests) < 100
                collection.step()
                rests.append(collection.wait_s())
        assert len(rests) > 5
        assert rests[-1] == 5.0, "then there is nothing to do but to wait for the backup"
        assert collection.num_waiting > 0
        assert files(folder) == before


def test_rounds_remove_what_waits_where_the_collection_does_not_keep_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedplcc.aggregator.garbage.collection.MOST_WAITING", 12)
    monkeypatch.setattr("fedplcc.aggregator.garbage.collection.BATCH", 1)

    class Busy(LocalFederation):
        keep = Keep(models=1, prototypes=0, updates=0)

        def step(self, order: object = None) -> bool:
            moved = super().step()
            collection = self.coordinator.garbage_collection
            collection.step()  # a blob, and each round frees six
            waiting.append(collection.num_waiting)
            return moved

    waiting = list[int]()
    with Busy.small(folder) as federation:
        federation.coordinator.garbage_collection.collect()
        # The steps of this collection have no time for more than one batch.
        monkeypatch.setattr("fedplcc.aggregator.garbage.collection.SLICE_S", 0.0)
        run = federation.whole_run(rounds=60)
        assert run.status is RunStatus.COMPLETED
        assert 12 < max(waiting) <= 12 + 6
        assert len(files(folder)) <= 12 + 2 * 6 + 4
        assert federation.metric("garbage_blobs") == federation.coordinator.garbage_collection.num_waiting


@pytest.mark.parametrize("number", [0, 3])
def test_a_run_whose_rows_cannot_be_read_keeps_its_blobs_and_the_others_are_collected(
    folder: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    clients = [NumpyClient("ann", size=3), NumpyClient("bob", size=3), NumpyClient("cat", size=4)]
    with LocalFederation(folder, clients) as federation:
        federation.keep = Keep(models=1, prototypes=0, updates=0)
        federation.restart()
        damaged = federation.whole_run(rounds=3)
        names = set(named_blobs(folder))
        broken = text("UPDATE rounds SET model = :value WHERE run_id = :run AND number = :number")
        with federation.store.database.transaction() as connection:
            connection.execute(broken, {"value": '{"role": 7}', "run": damaged.run_id, "number": number})
        federation.restart()
        for request in ("first", "second"):
            document = a_document("fedplcc", clients=("cat",), run={"rounds": 3})
            run = federation.run_to_end(federation.coordinator.create_run(request, document).run_id)
            federation.coordinator.garbage_collection.collect()
            assert names <= files(folder), "nobody knows which of them the damaged row names"
            assert results_of(federation, run, 0, 3) <= files(folder)
            assert not (results_of(federation, run, 1, 2) - names) & files(folder)
    assert "run_not_collected" in caplog.text
