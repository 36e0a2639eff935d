import threading
from dataclasses import dataclass, field, replace
from typing import Any, Never

import numpy as np
import pytest
import torch

from fedplcc.trainer.data.images.stored import StoredImages
from fedplcc.trainer.learning.augmenting.augmentation import CHANGES, Augmentation
from fedplcc.trainer.learning.device_images import DeviceImages
from tests.unit.trainer.builders import CPU, a_config, a_contract, digest, some_images, some_prototypes, train

CONTRACT = a_contract(mean=(0.1, 0.5, 0.9), std=(0.5, 0.25, 1.0))


def normalised(images: np.ndarray) -> np.ndarray:
    values: np.ndarray = (images / 255.0 - np.array(CONTRACT.mean)) / np.array(CONTRACT.std)
    return values.transpose(0, 3, 1, 2).astype(np.float32)


def test_a_batch_is_gathered_and_normalised() -> None:
    images = some_images()
    x, labels = DeviceImages.put(images, CONTRACT, CPU).batch(torch.tensor([7, 0, 7]))
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    np.testing.assert_allclose(x.numpy(), normalised(images.images_NSS3[[7, 0, 7]]), atol=2e-6)
    assert labels.tolist() == [1, 0, 1]


def test_all_images_come_in_order_and_none_is_dropped() -> None:
    images = some_images(11)
    pieces = list(DeviceImages.put(images, CONTRACT, CPU).in_order(4))
    assert [len(labels) for _, labels in pieces] == [4, 4, 3]
    np.testing.assert_allclose(torch.cat([x for x, _ in pieces]), normalised(images.images_NSS3), atol=2e-6)
    assert torch.cat([labels for _, labels in pieces]).tolist() == images.labels_N.tolist()


def test_arrays_that_may_not_be_written_are_copied() -> None:
    images = some_images()
    images.images_NSS3.flags.writeable = False
    data = DeviceImages.put(images, CONTRACT, CPU)
    assert data.kept_N.data_ptr() != images.images_NSS3.ctypes.data


@dataclass(frozen=True, eq=False)
class Counted(DeviceImages):
    """Counts the images of every batch that is moved to the device."""

    moved: list[tuple[str, int]] = field(default_factory=list)

    def _moved(self, images_BSS3: torch.Tensor) -> torch.Tensor:
        self.moved.append((str(images_BSS3.device), len(images_BSS3)))
        return super()._moved(images_BSS3)


def test_a_set_stays_in_host_memory_where_it_would_take_more_than_half_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def noted(tensor: torch.Tensor, *where: Any) -> torch.Tensor:
        asked.append(where)
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", noted)
    images = some_images()
    size = images.images_NSS3.nbytes
    DeviceImages.put(images, CONTRACT, CPU, free_bytes=2 * size - 1)
    assert asked == []
    DeviceImages.put(images, CONTRACT, CPU, free_bytes=2 * size)
    assert asked == [(CPU,)]


def test_a_device_that_is_full_after_all_leaves_the_set_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(tensor: torch.Tensor, *where: Any) -> Never:
        raise torch.OutOfMemoryError("somebody was faster")

    monkeypatch.setattr(torch.Tensor, "to", is_full)
    images = some_images()
    data = DeviceImages.put(images, CONTRACT, CPU, free_bytes=10**12)
    assert data.kept_N.data_ptr() == images.images_NSS3.ctypes.data


def test_training_ends_in_the_same_bytes_wherever_the_images_are_held() -> None:
    config = a_config("fedplcc", training={"local_steps": 5, "augment": list(CHANGES)})
    digests = []
    for free_bytes in (0, 10**12):
        data: Any = Counted.put(some_images(30), config.data, CPU, free_bytes=free_bytes)
        model, _ = train(config, data=data, prototypes=some_prototypes())
        digests.append(digest(model))
        assert len(data.moved) == 5  # every batch goes through the same door
    assert digests[0] == digests[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_brought_to_a_cuda_device_have_the_bytes_of_those_made_there() -> None:
    device, images, numbers = torch.device("cuda", 0), some_images(200), torch.arange(0, 200, 7)
    there = DeviceImages.put(images, CONTRACT, device)
    brought = DeviceImages.put(images, CONTRACT, device, free_bytes=0)
    assert (there.kept_N.device, brought.kept_N.device) == (device, CPU)
    for ours, theirs in zip(
        brought.batch(numbers, Augmentation(tuple(CHANGES), 0)),
        there.batch(numbers, Augmentation(tuple(CHANGES), 0)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    for (ours, _), (theirs, _) in zip(brought.in_order(64), there.in_order(64), strict=True):
        assert torch.equal(ours, theirs)


def test_the_set_is_held_as_bytes() -> None:
    data = DeviceImages.put(some_images(), CONTRACT, CPU)
    assert data.kept_N.dtype == torch.uint8
    assert (len(data), data.num_classes, data.device) == (12, 3, CPU)


def test_images_in_files_are_read_while_the_batch_before_is_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    images, reading = some_images(10), threading.Semaphore(0)
    numbers_N = np.arange(10)
    files = StoredImages((images.images_NSS3,), np.zeros(10, np.uint8), numbers_N, images.images_NSS3.shape[1])
    read = StoredImages.__getitem__

    def seen(self: StoredImages, numbers: Any) -> Any:
        reading.release()
        return read(self, numbers)

    monkeypatch.setattr(StoredImages, "__getitem__", seen)
    data = DeviceImages.put(replace(images, images=files), CONTRACT, CPU)
    plan = torch.from_numpy(numbers_N).flip(0).split(4)
    batches = data.batches(plan)
    found = [next(batches)]
    assert all(reading.acquire(timeout=30) for _ in range(2)), "nobody has asked for the second"
    found += batches
    for numbers_B, x_B3SS, labels_B in found:
        np.testing.assert_allclose(x_B3SS, normalised(images.images_NSS3[numbers_B]), atol=2e-6)
        assert labels_B.tolist() == images.labels_N[numbers_B].tolist()
    assert [len(numbers_B) for numbers_B, *_ in found] == [4, 4, 2]
