"""Room on the disk: whose uploads give way, and what goes on when it is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fedplcc.aggregator.incoming.space import in_order
from fedplcc.aggregator.incoming.transfers import Receiver
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.aggregator.store.blobs.reserve import RESERVE_FILE, make_room_to_start
from fedplcc.aggregator.store.blobs.uploads import Upload
from fedplcc.shared.errors import BlobNotFound, ClientQuarantined, StoreUnavailable, UploadSuperseded
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.steering import PauseRun, QuarantineClient, ResumeRun
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, RoundPhase, Run, RunStatus
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.builders import a_blob, a_round, a_run, an_update
from tests.support.records.captured_logs import logged

SIZE_BYTES = 64 << 20
"""Of the disk; its reserve is a mebibyte."""
MIB = 1 << 20


class SmallDisk:
    """A disk whose free space a test sets; uploads, initial models and the reserve count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.free_bytes, self._folder = SIZE_BYTES, folder
        monkeypatch.setattr(os, "statvfs", self._statvfs)

    def _statvfs(self, _path: object) -> SimpleNamespace:
        names = ("incoming/*/*", "initial/*", "staging/*", RESERVE_FILE)
        taken = sum(path.stat().st_size for name in names for path in self._folder.glob(name))
        free = max(0, self.free_bytes - taken) // 4096
        return SimpleNamespace(f_blocks=SIZE_BYTES // 4096, f_frsize=4096, f_bavail=free)


@pytest.fixture
def disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    return SmallDisk(monkeypatch, folder)


@pytest.fixture
def federation(folder: Path, disk: SmallDisk) -> Iterator[LocalFederation]:
    with LocalFederation(folder, map(NumpyClient, ("ann", "bob", "eve"))) as federation:
        federation.join()
        yield federation


def begun(federation: LocalFederation, run: Run, client_id: str, size_bytes: int, number: int = 0) -> Receiver:
    """The first byte of an upload."""
    blob = BlobRef(MODEL, a_blob(f"{client_id} {size_bytes} {number}").sha256, size_bytes)
    token = federation.clients[client_id].token
    receiver = present(federation.coordinator.transfers.begin_upload(client_id, token, run.run_id, 0, blob))
    receiver.write(0, b"x")
    return receiver


def run_of(federation: LocalFederation, client_id: str) -> Run:
    return federation.coordinator.create_run(f"of {client_id}", a_document(clients=(client_id,)))


def test_uploads_that_no_round_waits_for_give_way_first_and_then_the_largest() -> None:
    collecting = a_round(
        3, RoundPhase.COLLECTING, cohort=("ann", "bob", "eve", "zoe"), updates={"bob": an_update("bob")}
    )
    run = a_run(current_round=collecting, quarantined={"eve": "poison"})
    holders = {"ann": 5, "bob": 3, "eve": 1, "zoe": 9, "old": 7}
    assert in_order(holders, [run], with_awaited=False) == ["old", "bob", "eve"]
    assert in_order(holders, [run], with_awaited=True) == ["old", "bob", "eve", "zoe", "ann"]


def test_a_quarantined_client_s_uploads_go_at_once_and_its_stream_ends(
    federation: LocalFederation, folder: Path
) -> None:
    run = run_of(federation, "eve")
    receiver = begun(federation, run, "eve", 1000)
    shown = {client.client_id: client.held_bytes for client in federation.coordinator.list_clients()}
    assert shown == {"ann": 0, "bob": 0, "eve": 1}
    assert federation.metric("client_held_bytes", client="eve") is None, "before the first tick it has no series"
    federation.coordinator.tick()
    assert federation.metric("client_held_bytes", client="eve") == 1
    federation.coordinator.steer(run.run_id, QuarantineClient("eve"))
    assert not list(folder.glob("incoming/eve/*"))
    with pytest.raises(UploadSuperseded):
        receiver.write(1, b"y")
    receiver.close()
    assert {client.held_bytes for client in federation.coordinator.list_clients()} == {0}


def test_an_upload_that_begins_while_its_client_is_quarantined_leaves_nothing(
    federation: LocalFederation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, uploads = run_of(federation, "eve"), federation.coordinator._blobs.uploads
    begin = uploads.begin

    def begin_late(client_id: str, blob: BlobRef, budget_bytes: int | None = None) -> Upload:
        # After the check of the call, before its first byte.
        federation.coordinator.steer(run.run_id, QuarantineClient(client_id))
        return begin(client_id, blob, budget_bytes)

    monkeypatch.setattr(uploads, "begin", begin_late)
    with pytest.raises(ClientQuarantined):
        begun(federation, run, "eve", 1000)
    assert not list(folder.glob("incoming/eve/*"))


def test_a_newer_stream_of_an_upload_is_not_withdrawn_with_the_older_one(
    federation: LocalFederation, folder: Path
) -> None:
    uploads, blob = federation.coordinator._blobs.uploads, BlobRef(MODEL, a_blob("eve").sha256, 1000)
    older, newer = uploads.begin("eve", blob), uploads.begin("eve", blob)
    uploads.withdraw("eve", older)
    newer.write(0, b"x")
    assert [path.stat().st_size for path in folder.glob("incoming/eve/*")] == [1]
    uploads.withdraw("eve", newer)
    assert not uploads.has_any("eve")


def test_a_quarantined_client_keeps_what_another_run_waits_for(federation: LocalFederation, folder: Path) -> None:
    first, second = run_of(federation, "eve"), federation.coordinator.create_run("b", a_document(clients=("eve",)))
    receiver = begun(federation, second, "eve", 1000)
    federation.coordinator.steer(first.run_id, QuarantineClient("eve"))
    assert len(list(folder.glob("incoming/eve/*"))) == 1
    federation.coordinator.steer(second.run_id, QuarantineClient("eve"))
    assert not list(folder.glob("incoming/eve/*"))
    receiver.close()


def test_the_reserve_is_given_back_on_a_full_disk_and_taken_again_where_there_is_room(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    space, reserve = federation.coordinator.space, folder / RESERVE_FILE
    space.look()
    assert reserve.stat().st_size == MIB
    run = federation.create()
    disk.free_bytes = MIB + 1000
    space.look()
    assert not reserve.exists()
    blobs = federation.coordinator._blobs
    for refused in (
        lambda: begun(federation, run, "ann", 10),
        lambda: blobs.put(MODEL, [b"a result"]),
        lambda: federation.coordinator.create_run("another", a_document()),
    ):
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            refused()
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.coordinator.steer(run.run_id, ResumeRun())
    disk.free_bytes = 3 * MIB - 1
    space.look()
    assert not reserve.exists(), "it would be given back at once"
    disk.free_bytes = SIZE_BYTES
    federation.coordinator.create_run("after all", a_document())
    assert reserve.stat().st_size == MIB, "a person's request looks for room before it is refused"
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_what_is_announced_must_fit_and_those_who_hold_more_give_way(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    federation.coordinator.space.look()
    hoard, honest = run_of(federation, "eve"), run_of(federation, "ann")
    disk.free_bytes = 8 * MIB
    receivers = [begun(federation, hoard, "eve", MIB, number) for number in range(5)]
    for receiver in receivers:
        receiver.write(1, bytes(MIB - 2))
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        begun(federation, hoard, "eve", MIB, 6)
    mine = begun(federation, honest, "ann", MIB // 2)
    assert not list(folder.glob("incoming/eve/*"))
    assert len(list(folder.glob("incoming/ann/*"))) == 1
    for receiver in (*receivers, mine):
        receiver.close()
    assert federation.run_to_end(honest.run_id).status is RunStatus.COMPLETED


def test_an_announcement_that_does_not_fit_is_the_trouble_of_its_own_run_alone(
    federation: LocalFederation, disk: SmallDisk
) -> None:
    theirs, honest = run_of(federation, "eve"), run_of(federation, "ann")
    disk.free_bytes = 8 * MIB
    said = f"{7 * MIB} bytes, and {6 * MIB} are free for uploads"
    with logged() as lines:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=f"make room: eve announced {said}"):
                begun(federation, theirs, "eve", 7 * MIB)
    assert [(line["event"], line["run_id"]) for line in lines()] == [("no_room_for_upload", theirs.run_id)]
    shown = {run.run_id: sentence_of(run.reason) for run in federation.coordinator.list_runs(limit=2)}
    assert said in shown[theirs.run_id]
    assert said in sentence_of(federation.coordinator.get_run(theirs.run_id).reason)
    assert "disk or database" not in shown[honest.run_id]
    assert "disk or database" not in sentence_of(federation.coordinator.get_run(honest.run_id).reason)
    begun(federation, theirs, "eve", MIB).close()
    assert "disk or database" not in sentence_of(federation.coordinator.get_run(theirs.run_id).reason)


def a_model(number: int) -> bytes:
    return to_bytes({"w": np.full(MIB // 4 - 100, number, np.float32)})


def hold(federation: LocalFederation, folder: Path, number: int) -> str:
    """Upload an initial model, of about a mebibyte and as old as its number says; returns its SHA-256."""
    blob = blob_ref(MODEL, data := a_model(number))
    receiver = present(federation.coordinator.initial_models.begin_upload(blob, "model.safetensors"))
    with closing(receiver):
        receiver.write(data)
        receiver.finish()
    os.utime(folder / "initial" / f"{blob.sha256}.name", (number, number))
    return blob.sha256


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("initial/*") if path.suffix != ".name"}


def begun_with(federation: LocalFederation, sha256: str) -> Run:
    document = a_document(clients=("bob",), run={"initial_model": f"sha256:{sha256}"})
    return federation.coordinator.create_run(f"with {sha256}", document)


def test_initial_models_leave_uploads_their_room_and_those_that_no_run_has_give_way_the_oldest_first(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    federation.coordinator.space.look()
    disk.free_bytes = 9 * MIB
    named, first, _second, third, last = (hold(federation, folder, number) for number in range(1, 6))
    with pytest.raises(StoreUnavailable, match=f"beside the {3 * MIB} that its runs keep; make room there"):
        hold(federation, folder, 6)
    begun_with(federation, named)
    honest = run_of(federation, "ann")
    begun(federation, honest, "ann", 2 * MIB + MIB // 2).close()
    assert held(folder) == {named, third, last}
    with pytest.raises(BlobNotFound, match="holds no model"):
        begun_with(federation, first)
    begun_with(federation, third)
    assert federation.run_to_end(honest.run_id).status is RunStatus.COMPLETED


def test_no_initial_model_gives_way_to_what_does_not_fit_without_it_or_while_a_backup_is_made(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    run = run_of(federation, "eve")
    disk.free_bytes = 9 * MIB
    models = {hold(federation, folder, number) for number in range(1, 5)}
    with pytest.raises(StoreUnavailable, match=f"eve announced {7 * MIB} bytes"):
        begun(federation, run, "eve", 7 * MIB)
    with no_collection(folder), pytest.raises(StoreUnavailable, match=f"eve announced {6 * MIB} bytes"):
        begun(federation, run, "eve", 6 * MIB)
    assert held(folder) == models
    begun(federation, run, "eve", 6 * MIB).close()
    assert len(held(folder)) == 1


def test_a_short_disk_removes_initial_models_that_no_run_has(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    federation.coordinator.space.look()
    named, first, second = (hold(federation, folder, number) for number in range(1, 4))
    begun_with(federation, named)
    disk.free_bytes = 3 * MIB + 2 * MIB + MIB // 2
    with logged() as lines:
        federation.coordinator.space.look()
    assert held(folder) == {named, second}
    assert [(line["event"], line["sha256"]) for line in lines()] == [("initial_model_dropped", first)]


def test_initial_models_that_are_being_received_count_with_their_whole_size(
    federation: LocalFederation, disk: SmallDisk
) -> None:
    models = federation.coordinator.initial_models
    disk.free_bytes = 9 * MIB
    first, second = (BlobRef(MODEL, a_blob(name).sha256, 4 * MIB) for name in ("first", "second"))
    receiver = present(models.begin_upload(first, ""))
    with closing(receiver), pytest.raises(StoreUnavailable, match=f"has {5 * MIB} bytes free"):
        models.begin_upload(second, "")
    other = present(models.begin_upload(second, ""))
    other.close()


def test_a_run_whose_model_goes_while_it_is_created_is_refused_and_leaves_nothing(
    federation: LocalFederation, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, sha256 = federation.coordinator._blobs, hold(federation, folder, 1)
    keep = blobs.keep_initial

    def keep_late(name: str) -> None:
        blobs.drop_initial(name)
        keep(name)

    monkeypatch.setattr(blobs, "keep_initial", keep_late)
    with pytest.raises(BlobNotFound, match=r"holds no model .* any more; upload it again"):
        begun_with(federation, sha256)
    assert not federation.coordinator.list_runs(limit=1)


def test_a_start_on_a_full_disk_gives_the_reserve_back_and_then_the_largest_uploads(
    federation: LocalFederation, folder: Path, disk: SmallDisk
) -> None:
    federation.coordinator.space.look()
    for client_id, num_bytes in (("ann", MIB // 2), ("eve", 2 * MIB)):
        receiver = begun(federation, run_of(federation, client_id), client_id, 4 * MIB)
        for offset in range(1, num_bytes, MIB // 4):
            receiver.write(offset, bytes(MIB // 4))
        receiver.close()
    disk.free_bytes = 2 * MIB + MIB // 2
    make_room_to_start(folder)
    assert not (folder / RESERVE_FILE).exists()
    assert [path.name for path in folder.glob("incoming/*")] == ["ann"]
    make_room_to_start(folder)
    assert [path.name for path in folder.glob("incoming/*")] == ["ann"]
