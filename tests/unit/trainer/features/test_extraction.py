"""An image has one row of features, whatever is around it, in memory or in the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.types import Environment
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.data.images.stored import RowFile, StoredImages, row_digest
from fedplcc.trainer.features.cache import FeatureCache
from fedplcc.trainer.features.extraction import Extraction, features_facts
from fedplcc.trainer.learning.augmenting.augmentation import Augmentation
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.models.frozen import FROZEN_BATCH, FrozenBackbone
from tests.unit.trainer.builders import CPU, a_config, some_images

ENVIRONMENT = Environment(packages={"torch": "1"}, cpu="x", device="cpu", platform="x")
CONFIG = a_config()


class Counting(nn.Module):
    """A small convolutional backbone that counts its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.sizes: list[int] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.sizes.append(len(x))
        return self.layers(x)


def extraction(path: Path | None, module: nn.Module, config: RunConfig = CONFIG) -> Extraction:
    return Extraction(
        backbone=FrozenBackbone(module, 6, "tiny"),
        facts=features_facts(config, ENVIRONMENT),
        config=config,
        cache=FeatureCache(path),
    )


def rows(images: DeviceImages, path: Path | None, module: nn.Module | None = None) -> np.ndarray:
    made = extraction(path, module or Counting()).features(images, lambda: False, lambda done: None)
    assert made.are_features
    assert torch.equal(made.labels_N, images.labels_N)
    return made.kept_N.numpy()


def images(count: int = 40) -> DeviceImages:
    return DeviceImages.put(some_images(count), CONFIG.data, CPU)


def part(whole: DeviceImages, numbers: list[int]) -> DeviceImages:
    return DeviceImages(whole.kept_N[numbers], whole.labels_N[numbers], whole.mean_3, whole.std_3, whole.num_classes)


def test_rows_are_the_backbones_own_and_do_not_depend_on_the_set_around_them() -> None:
    whole, module = images(), Counting()
    x, _ = next(whole.in_order(40))
    with torch.no_grad():
        np.testing.assert_allclose(rows(whole, None), module.eval()(x), atol=1e-6)
    assert np.array_equal(rows(part(whole, [7, 31, 2]), None), rows(whole, None)[[7, 31, 2]])


def test_rows_of_images_in_files_are_the_same_and_few_images_are_read_at_a_time(
    tmp_path: Path, sizes_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = some_images(40)
    with (tmp_path / "x").open("w+b") as file:
        kept = RowFile(os.dup(file.fileno()), CONFIG.data.image_size, lambda: None)
    kept.write(0, whole.images_NSS3)
    kept.expect(range(40), [row_digest(image) for image in whole.images_NSS3])
    pieces = StoredImages((kept,), np.zeros(40, np.uint8), np.arange(40), CONFIG.data.image_size)
    stored = DeviceImages.put(ImageSet(pieces, whole.labels_N), CONFIG.data, CPU)
    wanted = with_views(images(), 2, ["flip"], Counting()).views_NVW
    monkeypatch.setattr("fedplcc.trainer.features.extraction.KEPT_AT_ONCE", 12)
    assert stored.stored is not None
    made = with_views(stored, 2, ["flip"], Counting())
    assert np.array_equal(made.views_NVW, wanted)
    assert sizes_read == [12, 12, 12, 4]
    assert made.stored is None


def test_each_image_is_computed_once_over_runs(tmp_path: Path) -> None:
    path, whole, module = tmp_path / "f.sqlite", images(), Counting()
    first = rows(whole, path, module)
    assert sum(module.sizes) == 3 * FROZEN_BATCH
    module.sizes.clear()
    assert np.array_equal(rows(whole, path, module), first)
    assert module.sizes == []
    known = part(whole, list(range(20)))
    other = tmp_path / "other.sqlite"
    rows(known, other)
    assert np.array_equal(rows(whole, other), first)


def test_other_normalisation_threads_weights_or_machine_have_rows_of_their_own() -> None:
    others = [
        a_config(data={"mean": (0.4, 0.4, 0.4)}),
        a_config(training={"threads": 2}),
        a_config(model={"name": "cnn5"}),
    ]
    facts = [features_facts(config, ENVIRONMENT) for config in (CONFIG, *others)]
    facts.append(features_facts(CONFIG, Environment(packages={"torch": "2"}, cpu="x", device="cpu", platform="x")))
    assert len(set(facts)) == len(facts)


def test_features_that_are_not_finite_are_refused() -> None:
    module = Counting()
    with torch.no_grad():
        next(module.parameters()).fill_(float("inf"))
    with pytest.raises(InvalidModel, match="not finite"):
        rows(images(4), None, module)


def test_a_stop_is_asked_for_before_every_batch_and_keeps_what_is_done(tmp_path: Path) -> None:
    done: list[float] = []
    with pytest.raises(Cancelled):
        extraction(tmp_path / "f.sqlite", Counting()).features(images(), lambda: len(done) == 2, done.append)
    assert done == [FROZEN_BATCH / 40, 2 * FROZEN_BATCH / 40]
    module = Counting()
    rows(images(), tmp_path / "f.sqlite", module)
    assert len(module.sizes) == 1


def with_views(whole: DeviceImages, num: int, augment: list[str], module: nn.Module, path: Path | None = None) -> Any:
    config = a_config(training={"augment": augment})
    made = extraction(path, module, config).features(whole, lambda: False, lambda done: None, num_views=num)
    assert made.views_NVW is not None
    return made


def test_a_copy_is_a_function_of_its_image_and_number_alone(tmp_path: Path) -> None:
    whole, module = images(), Counting()
    path = tmp_path / "f.sqlite"
    alone = rows(whole, path, module)
    made = with_views(whole, 2, ["flip", "crop"], module, path)
    assert sum(module.sizes) == (3 + 5) * FROZEN_BATCH, "the images themselves are known"
    assert np.array_equal(made.kept_N, alone)
    assert np.array_equal(made.views_NVW[:, 0], alone)
    assert not np.array_equal(made.views_NVW[:, 1], made.views_NVW[:, 2])
    few = with_views(part(whole, [7, 31]), 1, ["crop", "flip"], Counting())
    assert np.array_equal(few.views_NVW, made.views_NVW[[7, 31]][:, :2])
    flips = with_views(whole, 3, ["flip"], Counting()).views_NVW
    changed_x = whole.normalised(whole.kept_N.flip(2))
    with torch.no_grad():
        mirrored = module.eval()(changed_x)
    is_flipped = (flips[:, 1:] - mirrored[:, None]).abs().amax(2) < 1e-5
    is_same = (flips[:, 1:] - flips[:, :1]).abs().amax(2) < 1e-5
    assert (is_flipped | is_same).all()
    assert 0.3 < is_flipped.float().mean() < 0.7


def test_a_mini_batch_takes_images_and_copies_alike() -> None:
    made = with_views(images(), 3, ["crop"], Counting())
    numbers = torch.arange(40).repeat(50)
    augmentation = Augmentation(["crop"], 5)
    x, labels = made.batch(numbers, augmentation)
    assert torch.equal(labels, made.labels_N[numbers])
    is_taken = (x[:, None] == made.views_NVW[numbers]).all(2)
    assert is_taken.any(1).all()
    np.testing.assert_allclose(is_taken.float().mean(0), 0.25, atol=0.05)
    assert torch.equal(made.batch(numbers, Augmentation(["crop"], 5))[0], x)
    assert torch.equal(made.batch(numbers)[0], made.kept_N[numbers]), "evaluation sees the images"
