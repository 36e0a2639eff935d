"""Blobs on disk: uploads that resume, bytes that are believed only by their SHA-256, and crashes between any two steps."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.uploads import MAX_UPLOADS
from fedplcc.shared.errors import BlobCorrupt, BlobNotFound, ChunkOutOfOrder, StoreUnavailable, UploadSuperseded
from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import BlobRef
from tests.support import present
from tests.support.hosts.failing_disk import Disk, Killed

DATA = bytes(range(256)) * 4
BLOB = blob_ref("model", DATA)


@pytest.fixture
def blobs(folder: Path) -> BlobStore:
    return BlobStore(folder)


def upload(
    blobs: BlobStore, client_id: str = "ann", data: bytes = DATA, blob: BlobRef = BLOB, chunk: int = 100
) -> None:
    """What a client does: go on from where the store is, to the end."""
    if blobs.uploads.is_complete(client_id, blob):
        return
    receiving = blobs.uploads.begin(client_id, blob)
    try:
        for begin in range(receiving.offset_bytes, len(data), chunk):
            receiving.write(begin, data[begin : begin + chunk])
        receiving.finish()
    finally:
        blobs.uploads.end(client_id, receiving)


def send(blobs: BlobStore, data: bytes, client_id: str = "ann", blob: BlobRef = BLOB) -> None:
    """Send some bytes at the offset where the store is, then let go."""
    receiving = blobs.uploads.begin(client_id, blob)
    receiving.write(receiving.offset_bytes, data)
    blobs.uploads.end(client_id, receiving)


# Blobs


@pytest.mark.parametrize("again", ["put", "uploaded"])
def test_a_stored_blob_that_is_damaged_is_mended_when_its_bytes_come_again(folder: Path, again: str) -> None:
    BlobStore(folder).put("model", [DATA])
    blobs = BlobStore(folder)
    blobs.path(BLOB.sha256).write_bytes(DATA[:-1])
    if again == "put":
        blobs.put("model", [DATA])
    else:
        upload(blobs)
        blobs.keep("ann", [BLOB])
    assert blobs.verified_path(BLOB.sha256).read_bytes() == DATA, "never other bytes that count as verified"


def test_pieces_that_end_in_an_error_leave_nothing(blobs: BlobStore, folder: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield DATA
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        blobs.put("model", pieces())
    assert [path for path in folder.rglob("*") if path.is_file()] == []


# Uploads


@pytest.mark.parametrize("chunk", [7, 5000])
def test_an_upload_is_the_bytes_that_were_sent_whatever_the_chunks(blobs: BlobStore, chunk: int) -> None:
    upload(blobs, chunk=chunk)
    path = present(blobs.uploads.path("ann", BLOB))
    assert path.read_bytes() == DATA


def test_what_was_written_is_on_the_way_to_the_disk_before_the_next_stream_asks(blobs: BlobStore) -> None:
    receiving = blobs.uploads.begin("ann", BLOB)
    receiving.write(0, DATA[:5])
    assert blobs.uploads.received_bytes("ann", BLOB) == 5
    blobs.uploads.end("ann", receiving)


def test_an_upload_of_one_client_is_none_of_anothers(blobs: BlobStore) -> None:
    upload(blobs, "ann")
    assert not blobs.uploads.is_complete("bob", BLOB)
    assert blobs.uploads.path("bob", BLOB) is None
    assert blobs.uploads.received_bytes("bob", BLOB) == 0
    blobs.uploads.forget("bob")
    assert blobs.uploads.is_complete("ann", BLOB)


@pytest.mark.parametrize("offset", [99, 101])
def test_a_chunk_out_of_order_is_refused_with_the_offset_that_is_expected(blobs: BlobStore, offset: int) -> None:
    receiving = blobs.uploads.begin("ann", BLOB)
    receiving.write(0, DATA[:100])
    with pytest.raises(ChunkOutOfOrder) as refused:
        receiving.write(offset, DATA[:100])
    assert refused.value.metadata == {"expected_offset_bytes": "100"}
    receiving.write(100, DATA[100:])
    receiving.finish()
    blobs.uploads.end("ann", receiving)


def test_a_chunk_past_the_end_is_refused(blobs: BlobStore) -> None:
    receiving = blobs.uploads.begin("ann", BLOB)
    receiving.write(0, DATA[:-1])
    with pytest.raises(ChunkOutOfOrder, match="past the announced 1024 bytes"):
        receiving.write(len(DATA) - 1, b"\xff\x00")
    receiving.write(len(DATA) - 1, DATA[-1:])
    receiving.finish()
    blobs.uploads.end("ann", receiving)


def test_altered_bytes_are_dropped_and_the_upload_starts_from_nothing(blobs: BlobStore) -> None:
    altered = bytes([DATA[0] ^ 1]) + DATA[1:]
    with pytest.raises(BlobCorrupt) as refused:
        upload(blobs, data=altered)
    assert refused.value.metadata == {"sha256": BLOB.sha256}
    assert not blobs.uploads.is_complete("ann", BLOB)
    assert blobs.uploads.received_bytes("ann", BLOB) == 0
    upload(blobs)
    assert blobs.uploads.is_complete("ann", BLOB)


def test_a_part_that_was_altered_on_the_disk_is_found_out(blobs: BlobStore, folder: Path) -> None:
    send(blobs, DATA[:300])
    (part,) = (folder / "incoming" / "ann").iterdir()
    part.write_bytes(b"?" * 300)
    with pytest.raises(BlobCorrupt):
        upload(blobs)
    upload(blobs)
    assert blobs.uploads.is_complete("ann", BLOB)


def test_a_part_that_is_longer_than_the_blob_starts_from_nothing(blobs: BlobStore, folder: Path) -> None:
    send(blobs, DATA[:300])
    (part,) = (folder / "incoming" / "ann").iterdir()
    part.write_bytes(b"?" * 2000)
    assert blobs.uploads.received_bytes("ann", BLOB) <= BLOB.size_bytes
    upload(blobs)
    assert blobs.uploads.is_complete("ann", BLOB)


def test_a_truncated_upload_is_refused_and_kept_to_go_on(blobs: BlobStore) -> None:
    with pytest.raises(BlobCorrupt, match="ended at byte 1000 of 1024"):
        upload(blobs, data=DATA[:1000])
    assert blobs.uploads.received_bytes("ann", BLOB) == 1000
    upload(blobs)
    assert blobs.uploads.is_complete("ann", BLOB)


def test_a_newer_stream_takes_over_and_the_older_one_can_do_nothing(blobs: BlobStore) -> None:
    older = blobs.uploads.begin("ann", BLOB)
    older.write(0, DATA[:50])
    newer = blobs.uploads.begin("ann", BLOB)
    assert newer.offset_bytes == 50
    with pytest.raises(UploadSuperseded):
        older.write(50, DATA[50:])
    with pytest.raises(UploadSuperseded):
        older.finish()
    newer.write(50, DATA[50:])
    blobs.uploads.end("ann", older)
    newer.finish()
    blobs.uploads.end("ann", newer)
    path = present(blobs.uploads.path("ann", BLOB))
    assert path.read_bytes() == DATA


def test_two_clients_can_upload_the_same_blob_at_once(blobs: BlobStore) -> None:
    first, second = blobs.uploads.begin("ann", BLOB), blobs.uploads.begin("bob", BLOB)
    for receiving in (first, second):
        receiving.write(0, DATA)
        receiving.finish()
    blobs.uploads.end("ann", first)
    blobs.uploads.end("bob", second)
    blobs.keep("ann", [BLOB])
    blobs.keep("bob", [BLOB])
    blobs.uploads.forget("ann")
    blobs.uploads.forget("bob")
    assert blobs.read(BLOB.sha256) == DATA


def test_a_kept_upload_survives_being_forgotten(blobs: BlobStore) -> None:
    upload(blobs)
    blobs.keep("ann", [BLOB])
    assert blobs.uploads.is_complete("ann", BLOB), "a crash before the commit must find the upload again"
    blobs.keep("ann", [BLOB])
    blobs.uploads.forget("ann")
    assert not blobs.uploads.is_complete("ann", BLOB)
    assert blobs.read(BLOB.sha256) == DATA
    blobs.keep("ann", [BLOB])  # nothing is there to keep, and nothing is lost


def test_an_upload_that_was_forgotten_before_it_was_kept_is_missed(blobs: BlobStore) -> None:
    upload(blobs)
    blobs.uploads.forget("ann")
    with pytest.raises(BlobNotFound, match="send it again"):
        blobs.keep("ann", [BLOB])


def test_what_begins_while_its_client_is_forgotten_is_told_to_begin_again(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(blobs, DATA[:50])
    make_room = blobs.uploads._make_room
    forgetting = threading.Thread(target=blobs.uploads.forget, args=("ann",))

    def make_room_meanwhile(*arguments: Any) -> None:
        forgetting.start()
        forgetting.join(0.2)  # it waits for this upload to begin, or removes the folder from under it
        make_room(*arguments)

    monkeypatch.setattr(blobs.uploads, "_make_room", make_room_meanwhile)
    receiving = blobs.uploads.begin("ann", BLOB)
    forgetting.join()
    with pytest.raises(UploadSuperseded):
        receiving.write(50, DATA[50:])
    blobs.uploads.end("ann", receiving)
    assert not blobs.uploads.has_any("ann")


def test_uploads_that_are_begun_and_never_committed_do_not_fill_the_disk(blobs: BlobStore, folder: Path) -> None:
    datas = [bytes([number]) * 50 for number in range(MAX_UPLOADS + 5)]
    opened = []
    for number, data in enumerate(datas):
        receiving = blobs.uploads.begin("ann", blob_ref("model", data))
        receiving.write(0, data[:-1] if number % 2 else data)
        opened.append(receiving)
        if not number % 2:
            receiving.finish()
        name = f"{receiving.blob.sha256}.part" if number % 2 else receiving.blob.sha256
        os.utime(folder / "incoming" / "ann" / name, (number, number))  # a file system's clock may be coarse
    upload(blobs, client_id="bob")
    left = {path.name.removesuffix(".part") for path in (folder / "incoming" / "ann").iterdir()}
    assert left == {receiving.blob.sha256 for receiving in opened[-MAX_UPLOADS:]}, "the oldest are gone"
    assert blobs.uploads.is_complete("bob", BLOB), "nobody else's"
    with pytest.raises(UploadSuperseded):
        opened[1].write(49, b"x")
    assert blobs.uploads.received_bytes("ann", opened[1].blob) == 0
    again = blobs.uploads.begin("ann", opened[-2].blob)
    again.write(49, datas[-2][49:])
    again.finish()
    assert len(list((folder / "incoming" / "ann").iterdir())) == MAX_UPLOADS, "going on with one drops no other"
    for receiving in (*opened, again):
        blobs.uploads.end("ann", receiving)


# Crashes and a disk that fails


def attempt(state: Path) -> None:
    """What an aggregator does for a client, from the first byte to the commit and after it."""
    blobs = BlobStore(state)
    upload(blobs)
    blobs.keep("ann", [BLOB])
    assert blobs.path(BLOB.sha256).read_bytes() == DATA, "only now may a row name the blob"
    blobs.uploads.forget("ann")


def test_an_upload_killed_between_any_two_steps_goes_on_to_the_same_blob(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for step in range(1, 100):
        state = folder / str(step)
        state.mkdir()
        disk.kill_before(step)
        try:
            attempt(state)
        except Killed:
            disk.revive()
            attempt(state)
            assert BlobStore(state).read(BLOB.sha256) == DATA
        else:
            break
    assert step > 8, "the kills did not reach into the steps"


def test_a_put_killed_between_any_two_steps_leaves_a_whole_blob_or_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for step in range(1, 100):
        state = folder / str(step)
        state.mkdir()
        blobs = BlobStore(state)
        disk.kill_before(step)
        try:
            blobs.put("model", [DATA])
        except Killed:
            disk.revive()
            found = BlobStore(state).path(BLOB.sha256)
            assert not found.exists() or found.read_bytes() == DATA
            assert list((state / "staging").iterdir()) == [], "a new start clears what was being written"
            assert BlobStore(state).put("model", [DATA]) == BLOB
            assert found.read_bytes() == DATA
            assert disk.is_durable(state, found, BLOB.sha256), f"killed before step {step}"
        else:
            break
    assert step > 5, "the kills did not reach into the steps"


def test_a_blob_is_on_the_disk_before_it_is_named_and_its_name_before_it_is_returned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    blobs = BlobStore(folder)
    disk.revive()
    blobs.put("model", [DATA])
    assert disk.steps == ["fsync", "mkdir", "fsync folder", "link", "fsync folder", "unlink"]
    assert disk.is_durable(folder, blobs.path(BLOB.sha256), BLOB.sha256)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int = errno.ENOSPC) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("call", ["fsync", "link", "mkdir"])
def test_a_disk_that_fails_while_a_blob_is_put_is_store_unavailable(
    blobs: BlobStore, folder: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as patch:
        failing(patch, call)
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            blobs.put("model", [DATA])
    assert list((folder / "staging").iterdir()) == []
    assert blobs.put("model", [DATA]) == BLOB
    assert blobs.read(BLOB.sha256) == DATA


def test_a_disk_that_fills_up_within_a_chunk_loses_nothing(blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real full device refuses part of a write; here the file takes one byte more, then none."""
    receiving = blobs.uploads.begin("ann", BLOB)
    receiving.write(0, DATA[:100])
    real = receiving._file

    class FullFile:
        closed = False

        def write(self, data: bytes) -> int:
            if real.tell() > 100:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real.write(data[:1])

        def close(self) -> None:
            self.closed = True
            real.close()

    monkeypatch.setattr(receiving, "_file", FullFile())
    with pytest.raises(StoreUnavailable, match="No space left on device"):
        receiving.write(100, DATA[100:200])
    with pytest.raises(UploadSuperseded):
        receiving.write(100, DATA[100:200])
    blobs.uploads.end("ann", receiving)
    assert blobs.uploads.received_bytes("ann", BLOB) == 101
    upload(blobs)
    path = present(blobs.uploads.path("ann", BLOB))
    assert path.read_bytes() == DATA


def test_bytes_whose_fsync_failed_are_sent_again(blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        failing(patch, "fsync", errno.EIO)
        with pytest.raises(StoreUnavailable):
            upload(blobs)
    assert not blobs.uploads.is_complete("ann", BLOB)
    assert blobs.uploads.received_bytes("ann", BLOB) == 0, "nobody knows which of them the disk has"
    upload(blobs)
    assert blobs.uploads.is_complete("ann", BLOB)


@pytest.mark.parametrize("call", ["link", "fsync"])
def test_an_upload_that_cannot_be_kept_stays_an_upload(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    upload(blobs)
    with monkeypatch.context() as patch:
        failing(patch, call, errno.EIO)
        with pytest.raises(StoreUnavailable):
            blobs.keep("ann", [BLOB])
    assert blobs.uploads.is_complete("ann", BLOB)
    blobs.keep("ann", [BLOB])
    assert blobs.read(BLOB.sha256) == DATA


def test_a_folder_that_cannot_be_made_is_store_unavailable(folder: Path) -> None:
    (folder / "state").write_text("a file where a folder should be")
    with pytest.raises(StoreUnavailable):
        BlobStore(folder / "state")


def test_an_upload_into_a_folder_that_cannot_be_made_is_store_unavailable(blobs: BlobStore, folder: Path) -> None:
    (folder / "incoming" / "ann").write_text("a file where a folder should be")
    with pytest.raises(StoreUnavailable):
        blobs.uploads.begin("ann", BLOB)
