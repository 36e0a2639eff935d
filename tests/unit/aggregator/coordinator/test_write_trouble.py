"""The reason of failed writes: shown until they succeed again, or nobody has tried for a while."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from fedplcc.aggregator.coordinator.attendance import MAX_ANNOUNCED
from fedplcc.aggregator.ledger.write_trouble import FORGET_AFTER_S, WriteTrouble
from fedplcc.aggregator.store.blobs.uploads import Upload
from fedplcc.shared.errors import BlobCorrupt, StoreUnavailable
from fedplcc.shared.reasons import sentence_of
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.hosts.failing_disk import Disk
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.captured_logs import logged


def why_waiting(federation: LocalFederation, run_id: str) -> str:
    return sentence_of(federation.coordinator.get_run(run_id).reason)


def fail(trouble: WriteTrouble, what: str) -> None:
    with pytest.raises(StoreUnavailable), trouble.writing(what):
        raise StoreUnavailable(f"{what} cannot be written")


def test_a_failure_is_told_until_the_same_kind_of_writing_works() -> None:
    clock = Clock()
    trouble = WriteTrouble(clock)
    assert trouble.reason() is None
    fail(trouble, "uploads")
    clock.now += 1
    fail(trouble, "history")
    assert "history cannot be written" in sentence_of(trouble.reason())
    with trouble.writing("history"):
        pass
    assert "uploads cannot be written" in sentence_of(trouble.reason())
    with trouble.writing("uploads"):
        pass
    assert trouble.reason() is None


def test_an_announcement_without_room_is_told_of_its_run_and_forgotten_with_time_or_with_room() -> None:
    clock = Clock()
    trouble = WriteTrouble(clock)
    for run_id in ("a", "b"):
        with pytest.raises(StoreUnavailable), trouble.announcing(run_id):
            raise StoreUnavailable(f"no room in {run_id}")
    assert "no room in a" in sentence_of(trouble.reason("a"))
    assert trouble.reason("c") is None
    assert trouble.reason() is None
    with trouble.announcing("a"):
        pass
    assert trouble.reason("a") is None
    assert "no room in b" in sentence_of(trouble.reason("b"))
    clock.now += FORGET_AFTER_S + 1
    assert trouble.reason("b") is None


def test_an_upload_that_begins_again_does_not_say_that_the_disk_has_room() -> None:
    trouble = WriteTrouble(Clock())
    with logged() as lines:
        for _ in range(3):
            with trouble.writing("uploads", is_proof=False):
                pass
            fail(trouble, "uploads")
    assert [line["event"] for line in lines()] == ["storage_fails"]


def test_a_run_waits_for_storage_while_its_upload_only_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_folder() as folder, LocalFederation(Path(folder), [NumpyClient("ann")]) as federation:
        federation.join()
        run = federation.create()
        client = federation.clients["ann"]
        task = federation.task(client)
        blob, data = next(iter(client.work(task, None)[1].items()))
        for _ in range(2):
            receiver = federation.coordinator.transfers.begin_upload(
                client.client_id, client.token, run.run_id, task.round, blob
            )
            assert receiver is not None
            with monkeypatch.context() as patch:
                patch.setattr(Upload, "write", lambda *_: no_room())
                with pytest.raises(StoreUnavailable):
                    receiver.write(0, data)
            receiver.close()
            assert why_waiting(federation, run.run_id).startswith("waits for the disk or database: ")
        again = federation.coordinator.transfers.begin_upload(
            client.client_id, client.token, run.run_id, task.round, blob
        )
        assert again is not None
        assert why_waiting(federation, run.run_id).startswith("waits for the disk or database: ")
        again.write(0, data)
        again.close()
        assert "disk or database" not in why_waiting(federation, run.run_id)


def test_a_failure_that_nobody_met_again_is_forgotten_and_other_errors_are_none_of_it() -> None:
    clock = Clock()
    trouble = WriteTrouble(clock)
    fail(trouble, "uploads")
    clock.now += FORGET_AFTER_S + 1
    assert trouble.reason() is None
    with pytest.raises(BlobCorrupt), trouble.writing("results"):
        raise BlobCorrupt("other bytes")
    assert trouble.reason() is None


def test_a_run_says_why_it_waits_and_keeps_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_folder() as folder, LocalFederation(Path(folder), [NumpyClient("ann")]) as federation:
        federation.join()
        run = federation.create()
        disk = Disk(monkeypatch)
        client = federation.clients["ann"]
        task = federation.task(client)
        update, blobs = client.work(task, None)
        disk.fail_at(1)
        with pytest.raises(StoreUnavailable):
            federation.upload(client, task, blobs)
        for seen in (federation.coordinator.get_run(run.run_id), *federation.coordinator.list_runs(limit=1)):
            assert sentence_of(seen.reason).startswith("waits for the disk or database: ")
        disk.revive()
        federation.submit(client, task, update, blobs)
        assert "disk or database" not in why_waiting(federation, run.run_id)


def test_a_client_that_joined_while_nothing_could_be_written_is_written_down_when_it_can() -> None:
    with memory_folder() as folder, LocalFederation(Path(folder), [NumpyClient("ann")]) as federation:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(federation.store, "transaction", no_room)
            for _ in range(MAX_ANNOUNCED + 1):
                with pytest.raises(StoreUnavailable):
                    federation.join()
        federation.join()
        assert [client.client_id for client in federation.coordinator.list_clients()] == ["ann"]
        assert len(federation.events("", "client_joined")) == 1


def test_a_known_client_that_came_back_while_nothing_could_be_written_is_in_the_history_when_it_can() -> None:
    with memory_folder() as folder, LocalFederation(Path(folder), [NumpyClient("ann")]) as federation:
        federation.join()
        federation.start_again()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(federation.store, "transaction", no_room)
            with pytest.raises(StoreUnavailable):
                federation.join()
        federation.join()
        federation.join()
        assert len(federation.events("", "client_joined")) == 2


def no_room() -> NoReturn:
    raise StoreUnavailable("the disk is full")
