"""Images that memory would not hold: the same as in memory, decoded once, whole after a kill, read a few at a time."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.shared.config.tables.public import PublicSection
from fedplcc.shared.config.tables.stream import Place, StreamSection, stages_spec
from fedplcc.shared.errors import DiskFull, InvalidData, StoreUnavailable
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.data import ImageSet, load_dataset, read_stream, reading
from fedplcc.trainer.data.images import store as store_module
from fedplcc.trainer.data.images.pixels import read_pixels
from fedplcc.trainer.data.images.store import RECORD_BYTES, ImageStore
from fedplcc.trainer.data.images.stored import PIECE, RowFile, StoredImages, pieces_of
from fedplcc.trainer.data.loading import ClientData
from fedplcc.trainer.data.reading import Reader
from fedplcc.trainer.data.sets import folder
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.public_images import PublicImages
from tests.unit.trainer.builders import CLASSES, CPU, a_contract, write_pictures

CONTRACT = a_contract(validation_every=4)
NUM_IMAGES = 90


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "pictures", NUM_IMAGES, 20, CLASSES)


@pytest.fixture(autouse=True)
def times_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as settled at once."""
    monkeypatch.setattr(folder, "SETTLED_S", -1e9)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are decoded."""
    found: list[Path] = []

    def watched(path: Path, *args: Any) -> Any:
        found.append(path)
        return read_pixels(path, *args)

    monkeypatch.setattr(folder, "read_pixels", watched)
    return found


def stored(root: Path, place: Path, **kwargs: Any) -> ClientData:
    reader = Reader(store=ImageStore(place, in_memory_bytes=0))
    return load_dataset(f"folder:{root}", contract=CONTRACT, reader=reader, **kwargs)


def in_memory(root: Path, **kwargs: Any) -> ClientData:
    return load_dataset(f"folder:{root}", contract=CONTRACT, **kwargs)


def check_same(found: ImageSet, wanted: ImageSet) -> None:
    assert isinstance(found.images, StoredImages)
    assert isinstance(wanted.images, np.ndarray)
    assert found.images.shape == wanted.images.shape
    assert found.images.nbytes == wanted.images.nbytes
    whole = [*pieces_of(found.images)]
    assert np.array_equal(np.concatenate([wanted.images[:0], *whole]), wanted.images)
    assert np.array_equal(found.labels_N, wanted.labels_N)
    assert (found.marks, found.groups) == (wanted.marks, wanted.groups)


def check_all_same(found: ClientData, wanted: ClientData) -> None:
    for side in ("train", "validation", "test"):
        check_same(getattr(found, side), getattr(wanted, side))
    assert found.unreadable == wanted.unreadable


@pytest.mark.parametrize(
    "kwargs", [{}, {"samples_per_class": 5, "seed": 3}, {"fraction": 0.5}, {"evaluate_only": True}]
)
def test_images_in_files_are_those_in_memory_the_first_time_and_the_second(
    pictures: Path, tmp_path: Path, reads: list[Path], kwargs: dict[str, Any]
) -> None:
    (pictures / "dog" / "001.png").write_bytes(b"damaged")
    wanted = in_memory(pictures, **kwargs)
    check_all_same(stored(pictures, tmp_path / "kept", **kwargs), wanted)
    reads.clear()
    check_all_same(stored(pictures, tmp_path / "kept", **kwargs), wanted)
    assert {path.name for path in reads} <= {"001.png"}, "only what cannot be read is tried again"


def test_a_small_set_stays_in_memory_and_makes_no_file(pictures: Path, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    exact = NUM_IMAGES * 3 * 16**2
    for bytes_, is_stored in ((exact, False), (exact - 1, True)):
        reader = Reader(store=ImageStore(place, in_memory_bytes=bytes_))
        data = load_dataset(f"folder:{pictures}", contract=CONTRACT, reader=reader)
        assert isinstance(data.train.images, StoredImages) is is_stored
        assert place.exists() is is_stored
    assert place.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o177 == 0 for file in place.glob("*-*"))


def test_a_subset_a_joined_set_and_one_of_large_classes_are_chosen_without_reading(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, wanted = stored(pictures, tmp_path / "kept"), in_memory(pictures)
    is_wanted_N = np.arange(len(wanted.train)) % 3 == 1
    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "read", lambda *args: pytest.fail("read"))
        chosen, large = data.train.of(is_wanted_N), data.train.of_large_classes(20)
    check_same(chosen, wanted.train.of(is_wanted_N))
    check_same(large, wanted.train.of_large_classes(20))
    numbers = np.array([3, 1, 2, 7, 3])
    assert isinstance(data.train.images, StoredImages)
    assert np.array_equal(data.train.images[numbers], wanted.train.images_NSS3[numbers])
    assert np.array_equal(data.train.images[5], wanted.train.images_NSS3[5])


@pytest.mark.parametrize("in_memory_bytes", [0, 3 * 60 * 16**2 * 3])
def test_stages_of_several_data_sets_are_joined(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    """With the second bound, the small set is in memory and the large one in files."""
    small = write_pictures(tmp_path / "small", 30, 20, CLASSES)
    section = StreamSection(stages=2, rounds_per_stage=1, train_on="cumulative")
    spec = stages_spec([f"folder:{small}", f"folder:{pictures}"])

    def read(reader: Reader) -> Any:
        found = read_stream(spec, [1, 2], stream=section, contract=CONTRACT, client_id="a", seed=0, reader=reader)
        return found.at(Place(1, 2))

    found = read(Reader(store=ImageStore(tmp_path / "kept", in_memory_bytes=in_memory_bytes)))
    wanted = read(Reader())
    for side in ("train", "validation", "test"):
        check_same(getattr(found, side), getattr(wanted, side))
    assert found.sha256 == wanted.sha256


def test_arrays_of_a_data_set_lie_in_a_file_that_goes_with_them(tmp_path: Path) -> None:
    rng, place = np.random.default_rng(0), tmp_path / "kept"
    x, y = rng.integers(256, size=(40, 20, 20, 3), dtype=np.uint8), np.arange(40) % 3
    np.savez(tmp_path / "x.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=["cat", "dog", "owl"])
    spec = f"npz:{tmp_path / 'x.npz'}"
    reader = Reader(store=ImageStore(place, in_memory_bytes=0))
    check_all_same(load_dataset(spec, contract=CONTRACT, reader=reader), load_dataset(spec, contract=CONTRACT))
    assert sum(file.stat().st_size for file in place.iterdir()) == 0


def test_public_images_are_the_same_in_their_drawn_order(pictures: Path, tmp_path: Path) -> None:
    section, reader = (
        PublicSection(data="any", num_images=40),
        Reader(store=ImageStore(tmp_path / "kept", in_memory_bytes=0)),
    )
    spec = f"folder:{pictures}"
    found, wanted = (PublicImages.load(spec, section, CONTRACT, CPU, each) for each in (reader, Reader()))
    assert found.sha256 == wanted.sha256
    assert found.images.place == "disk"
    assert torch.equal(found.images.rows(slice(0, 40)), wanted.images.kept_N)


def test_a_changed_file_is_decoded_again_and_one_that_may_still_change_is_never_found_again(
    pictures: Path, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(pictures, tmp_path / "kept")
    (pictures / "cat" / "000.png").write_bytes((pictures / "dog" / "001.png").read_bytes())
    reads.clear()
    check_all_same(stored(pictures, tmp_path / "kept"), in_memory(pictures))
    assert [path.name for path in reads[:1]] == ["000.png"]
    assert len(reads) == 1 + NUM_IMAGES
    monkeypatch.setattr(folder, "SETTLED_S", 3600.0)
    for _ in range(2):
        reads.clear()
        check_all_same(stored(pictures, tmp_path / "young"), in_memory(pictures))
        assert len(reads) == 2 * NUM_IMAGES
    assert sum(file.stat().st_size for file in (tmp_path / "young").iterdir()) == 0


class Killed(BaseException):
    """The process ends here."""


def test_after_a_kill_in_any_write_the_next_process_has_the_same_images(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = write_pictures(tmp_path / "pictures", 150, 20, CLASSES)
    wanted, write, place = in_memory(pictures), os.pwrite, tmp_path / "kept"
    for number in range(100):
        left = [number]

        def half(descriptor: int, data: Any, at: int, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] < 0:
                write(descriptor, bytes(data)[: len(data) // 2], at)
                raise Killed
            return write(descriptor, data, at)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", half)
            with suppress(Killed):
                stored(pictures, place)
        reads.clear()
        check_all_same(stored(pictures, place), wanted)
        assert len(reads) <= 150
        for file in place.glob("*-*"):
            file.unlink()
        if left[0] >= 0:
            break
    assert number >= 6, "pieces and their records, each killed in the middle"


def test_two_processes_at_once_keep_every_image_once(pictures: Path, tmp_path: Path) -> None:
    found: list[ClientData] = []
    place = tmp_path / "kept"
    threads = [threading.Thread(target=lambda: found.append(stored(pictures, place))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for data in found:
        check_all_same(data, in_memory(pictures))
    (index,) = place.glob("*.index")
    assert index.stat().st_size == NUM_IMAGES * RECORD_BYTES


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:]])
def test_damaged_pixels_are_refused_where_they_are_read_and_decoded_again(
    pictures: Path, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    place = tmp_path / "kept"
    stored(pictures, place)
    (file,) = place.glob("*.pixels")
    file.write_bytes(damage(file.read_bytes()))
    data = stored(pictures, place)
    sides = [side.images for side in (data.train, data.validation, data.test)]
    with pytest.raises(StoreUnavailable, match="are not as they were written; they are removed, and decoded again"):
        [list(pieces_of(images)) for images in sides]
    assert all(isinstance(images, StoredImages) and images.is_damaged for images in sides)
    assert not list(place.glob("*.pixels"))
    check_all_same(stored(pictures, place), in_memory(pictures))


def test_a_damaged_record_is_as_none(pictures: Path, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    stored(pictures, place)
    (file,) = place.glob("*.index")
    data = bytearray(file.read_bytes())
    data[RECORD_BYTES + 40] ^= 1  # in the digest of a picture
    file.write_bytes(data[:-10])
    check_all_same(stored(pictures, place), in_memory(pictures))


def test_a_disk_without_room_is_refused_with_what_is_wanted_and_what_is_free(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageStore, "_free", lambda self: 1 << 20)
    monkeypatch.setattr(store_module, "FREE_BYTES", 1 << 20)
    with pytest.raises(
        InvalidData, match=f"{NUM_IMAGES} images of this size need 0.0 GiB .* of which 0.0 GiB are free"
    ):
        stored(pictures, tmp_path / "kept")
    monkeypatch.setattr(os, "pwrite", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    monkeypatch.setattr(ImageStore, "_free", lambda self: 1 << 40)
    with pytest.raises(DiskFull, match=r"cannot be kept in the folder images .*: No space left on device; make room"):
        stored(pictures, tmp_path / "kept")


def test_room_is_made_by_files_of_other_sizes_and_then_by_images_that_have_gone(pictures: Path, tmp_path: Path) -> None:
    row_bytes = 3 * 16**2
    store = ImageStore(tmp_path / "kept", in_memory_bytes=0, max_bytes=NUM_IMAGES * row_bytes)

    def load(size: int = 16) -> ClientData:
        contract = CONTRACT.model_copy(update={"image_size": size})
        return load_dataset(f"folder:{pictures}", contract=contract, reader=Reader(store=store))

    def sizes() -> set[str]:
        return {path.name.partition("-")[0] for path in store.folder.glob("*.pixels")}

    load(size=24)
    assert sizes() == {"24"}
    load()
    assert sizes() == {"16"}
    data = load()
    for round_number in range(4):  # all files change: rows of before are of no use
        for path in pictures.glob("*/*.png"):
            os.utime(path, (round_number, round_number))
        before, data = data, load()
        check_all_same(before, in_memory(pictures))  # who reads a file that is removed keeps it
    (file,) = store.folder.glob("*.pixels")
    assert file.stat().st_size <= 2 * NUM_IMAGES * row_bytes
    check_all_same(data, in_memory(pictures))


def test_reading_tells_its_progress_and_can_be_ended(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Path]
) -> None:
    monkeypatch.setattr(reading, "TOLD_EVERY_S", 0.0)
    shares: list[float] = []
    reader = Reader(store=ImageStore(tmp_path / "kept", in_memory_bytes=0), on_share=shares.append)
    load_dataset(f"folder:{pictures}", contract=CONTRACT, reader=reader)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) >= 3
    reads.clear()
    ended = replace(reader, store=ImageStore(tmp_path / "other", in_memory_bytes=0), should_stop=lambda: True)
    with pytest.raises(Cancelled):
        load_dataset(f"folder:{pictures}", contract=CONTRACT, reader=ended)
    assert len(reads) <= reading.AT_ONCE


def test_no_place_takes_a_whole_set_into_memory(tmp_path: Path, sizes_read: list[int]) -> None:
    side, count = 64, 1200
    pictures, contract = write_pictures(tmp_path / "pictures", 30, side, CLASSES), a_contract(image_size=side)
    for number in range(30, count):
        source = sorted(pictures.glob("*/0[0-2]?.png"))[number % 30]
        os.link(source, source.parent / f"{number:05d}.png")
    reader = Reader(store=ImageStore(tmp_path / "kept", in_memory_bytes=0))
    whole_bytes = count * 3 * side**2
    tracemalloc.start()
    try:
        data = load_dataset(f"folder:{pictures}", contract=contract, reader=reader)
        images = DeviceImages.put(data.train, contract, CPU)
        for _ in images.in_order(100):
            pass
        _, peak = tracemalloc.get_traced_memory()
        assert peak < whole_bytes / 3, f"{peak} bytes of {whole_bytes}"
        assert max(sizes_read) == 100
        planted = np.stack(list(data.train.images[:]))
        assert tracemalloc.get_traced_memory()[1] > planted.nbytes > whole_bytes / 3, "a whole copy is seen"
    finally:
        tracemalloc.stop()
    assert max(sizes_read) > PIECE
    with pytest.raises(TypeError, match="stored images are no array"):
        np.asarray(data.train.images)


def test_images_that_fit_on_an_accelerator_are_put_there_in_pieces(
    pictures: Path, tmp_path: Path, sizes_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, wanted = stored(pictures, tmp_path / "kept").train, in_memory(pictures).train
    put = DeviceImages.put(data, CONTRACT, CPU, free_bytes=1 << 30)
    assert np.array_equal(put.kept_N.numpy(), wanted.images_NSS3)
    assert (put.stored, put.place) == (None, "cpu")
    too_large = DeviceImages.put(data, CONTRACT, CPU, free_bytes=1000)
    assert (len(too_large), len(too_large.kept_N), too_large.place) == (len(data), 0, "disk")
    assert too_large.nbytes == wanted.images_NSS3.nbytes
