"""Bytes that are known by their seal: the same answer as SHA-256 gives, and SHA-256 itself where no seal is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.store.blobs import seals
from fedplcc.aggregator.store.blobs.files import sha256_of
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.aggregator.store.blobs.seals import Recognising, Sealing, expecting
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.tensors import TensorEntry, sha256_hex

DATA = np.random.default_rng(0).bytes(4096)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "_seals", {})


def found(data: bytes, *cuts: int) -> str:
    """What a process finds that expects `DATA` and reads these bytes in pieces."""
    digest = expecting(sha256_hex(DATA))
    for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
        digest.update(data[begin:end])
    return digest.finish()


def known() -> None:
    sealing = Sealing()
    sealing.update(DATA)
    assert sealing.finish() == sha256_hex(DATA)


def test_bytes_are_known_again_however_they_are_cut() -> None:
    assert isinstance(expecting(sha256_hex(DATA)), Sealing)
    assert found(DATA, 1, 100) == sha256_hex(DATA)  # this was the first time, by SHA-256
    assert isinstance(expecting(sha256_hex(DATA)), Recognising)
    assert found(DATA, 7, 8, 4095) == sha256_hex(DATA)


@pytest.mark.parametrize(
    "other",
    [
        bytes([DATA[0] ^ 1]) + DATA[1:],
        DATA[:-1] + bytes([DATA[-1] ^ 128]),
        DATA[512:1024] + DATA[:512] + DATA[1024:],
        DATA[:-1],
        DATA + b"\0",
        bytes(len(DATA)),
    ],
    ids=["first bit", "last bit", "sectors changed places", "shorter", "longer", "zeros"],
)
def test_other_bytes_are_not_taken_for_them(other: bytes) -> None:
    known()
    assert not found(other)


def test_the_oldest_seal_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MAX_SEALS", 2)
    known()
    for text in (b"one", b"two"):
        sealing = Sealing()
        sealing.update(text)
        sealing.finish()
    assert isinstance(expecting(sha256_hex(DATA)), Sealing)
    assert isinstance(expecting(sha256_hex(b"two")), Recognising)


def test_a_blob_that_was_hashed_is_read_by_its_seal_and_refused_when_a_bit_flips(tmp_path: Path) -> None:
    path = tmp_path / sha256_hex(DATA)
    path.write_bytes(DATA)
    region = TensorEntry(name="tensor", dtype="F32", shape=(len(DATA) // 4,), begin=0, end=len(DATA))
    assert sha256_of(path) == path.name
    assert isinstance(expecting(path.name), Recognising)
    blob = HashedBlob(path)
    assert blob.block(region, 0, 1024).tobytes() == DATA
    blob.finish()
    path.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    blob = HashedBlob(path)
    blob.block(region, 0, 1024)
    with pytest.raises(PayloadCorrupt):
        blob.finish()
