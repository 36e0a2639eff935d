"""Small blobs that go out with tasks are read once for all clients, checked, and kept within a bound."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fedplcc.aggregator.incoming import inline_blobs
from fedplcc.aggregator.incoming.inline_blobs import SmallBlobs
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.types import LOCAL_CLUSTER, MODEL, BlobRef, Payload

WAIT_S = 60.0


class CountingStore(BlobStore):
    """Counts how often a blob is read."""

    num_read = 0

    def read(self, sha256: str) -> bytes:
        self.num_read += 1
        return super().read(sha256)


@pytest.fixture
def store(folder: Path) -> CountingStore:
    return CountingStore(folder)


def payload(*blobs: BlobRef) -> Payload:
    return Payload(
        tensor_groups=tuple(blob for blob in blobs if blob.role == MODEL),
        prototype_sets=tuple(blob for blob in blobs if blob.role != MODEL),
    )


def test_a_thousand_clients_have_a_blob_read_once(store: CountingStore) -> None:
    model = store.put(MODEL, [b"model"])
    small = SmallBlobs(store, max_inline_bytes=100)
    assert small.kept([model]) is None
    found: list[tuple[bytes, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(small.read([model]))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(b"model",)] * 20
    assert small.kept([model]) == (b"model",)
    assert store.num_read == 1


def test_all_missing_blobs_go_out_or_none(store: CountingStore) -> None:
    model, prototypes = store.put(MODEL, [b"model"]), store.put(LOCAL_CLUSTER, [b"sets"])
    both = payload(model, prototypes)
    small = SmallBlobs(store, max_inline_bytes=9)
    assert small.wanted(both, held=(), max_bytes=100) == (model, prototypes)
    assert small.wanted(both, held=(), max_bytes=8) == ()
    assert small.wanted(both, held={model.sha256}, max_bytes=8) == (prototypes,)
    assert small.wanted(both, held={model.sha256, prototypes.sha256}, max_bytes=8) == ()
    assert SmallBlobs(store, max_inline_bytes=8).wanted(both, held=(), max_bytes=100) == ()
    assert SmallBlobs(store, max_inline_bytes=0).wanted(both, held=(), max_bytes=100) == ()


def test_a_blob_that_is_damaged_or_gone_is_left_to_its_download(store: CountingStore) -> None:
    model, gone = store.put(MODEL, [b"model"]), BlobRef(MODEL, "0" * 64, 5)
    store.path(model.sha256).write_bytes(b"mODEL")
    small = SmallBlobs(store, max_inline_bytes=100)
    assert small.read([model]) == small.read([gone]) == ()
    store.path(model.sha256).write_bytes(b"model")
    assert small.read([model]) == (b"model",)


def test_the_blobs_used_longest_ago_are_forgotten_first(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_blobs, "MAX_KEPT_BYTES", 10)
    first, second, third = (store.put(MODEL, [data]) for data in (b"1111", b"2222", b"3333"))
    small = SmallBlobs(store, max_inline_bytes=100)
    for blob in (first, second, first, third):
        small.read([blob])
    assert small.kept([first, third]) == (b"1111", b"3333")
    assert small.kept([second]) is None


def test_a_disk_that_hangs_keeps_nobody_waiting_who_looks_into_memory(folder: Path) -> None:
    going_on, has_begun = threading.Event(), threading.Event()

    class HangingStore(BlobStore):
        def read(self, sha256: str) -> bytes:
            has_begun.set()
            going_on.wait()
            return super().read(sha256)

    store = HangingStore(folder)
    model = store.put(MODEL, [b"model"])
    small = SmallBlobs(store, max_inline_bytes=100)
    reader = threading.Thread(target=small.read, args=([model],))
    reader.start()
    looked: list[object] = []
    looker = threading.Thread(target=lambda: looked.append(small.kept([model])))
    try:
        assert has_begun.wait(WAIT_S)
        looker.start()
        looker.join(WAIT_S)
        assert looked == [None]
    finally:
        going_on.set()
        reader.join()
        looker.join()
    assert small.kept([model]) == (b"model",)
