"""Augmentation: its draws, its order, and torchvision as the oracle of what is done to an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from fedplcc.shared.config.tables.training import AUGMENTATIONS
from fedplcc.shared.errors import InvalidConfig
from fedplcc.trainer.learning.augmenting import augmentation
from fedplcc.trainer.learning.augmenting.augmentation import CHANGES, JITTER, Augmentation, crop_windows
from fedplcc.trainer.reproducibility.randomness import derive_seed
from tests.unit.trainer.builders import some_images


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 40, side: int = 16) -> torch.Tensor:
    return torch.from_numpy(some_images(count, side).images_NSS3)


@pytest.mark.parametrize("later", [name for name in CHANGES if name not in augmentation.TOGETHER])
def test_another_change_changes_no_draw_of_those_before_it(later: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one draws, and does nothing else."""
    images = pictures(8)
    names = [name for name in CHANGES if name != later]
    without = Augmentation(names, 5)
    plain = [without.apply(images) for _ in range(2)]
    draw = CHANGES[later]

    def only_draws(images_BSS3: torch.Tensor, drawn: torch.Generator) -> torch.Tensor:
        draw(images_BSS3, drawn)
        return images_BSS3

    monkeypatch.setattr(augmentation, "CHANGES", {**CHANGES, later: only_draws})
    beside = Augmentation([*names, later], 5)
    assert all(torch.equal(beside.apply(images), each) for each in plain)


def test_the_order_is_fixed_whatever_the_configuration_lists_first() -> None:
    images = pictures(8)
    backwards = Augmentation(tuple(reversed(AUGMENTATIONS)), 3).apply(images)
    assert torch.equal(Augmentation(tuple(CHANGES), 3).apply(images), backwards)
    step_by_step = images
    together = generator(3)
    for name, change in CHANGES.items():
        own = generator(derive_seed(name, 3))
        step_by_step = change(step_by_step, together if name in ("crop", "flip") else own)
    assert torch.equal(step_by_step, backwards)
    assert (backwards.dtype, backwards.shape) == (torch.uint8, images.shape)


@given(side=st.integers(8, 300), seed=st.integers(0, 10_000))
def test_a_window_lies_in_its_image_with_its_area_and_ratio(side: int, seed: int) -> None:
    top, left, height, width = crop_windows(64, side, generator(seed)).T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= side).all()
    assert (left + width <= side).all()
    rounding = 1 / side
    ratio = width / height
    assert ratio.min() >= 3 / 4 - 3 * rounding
    assert ratio.max() <= 4 / 3 + 4 * rounding
    assert (height * width / side**2).min() >= 0.7 - 2 * rounding


def test_windows_are_spread_as_torchvisions_are() -> None:
    torch.manual_seed(0)
    theirs = v2.RandomResizedCrop(100, scale=(0.7, 1.0))
    image = torch.zeros(3, 100, 100)
    drawn = [theirs.make_params([image]) for _ in range(4000)]
    wanted = np.array([[each[key] for key in ("top", "left", "height", "width")] for each in drawn])
    found = crop_windows(4000, 100, generator()).numpy()
    np.testing.assert_allclose(found.mean(0), wanted.mean(0), atol=0.4)
    np.testing.assert_allclose(found.std(0), wanted.std(0), atol=0.4)


def test_a_resized_crop_is_the_window_at_the_images_size() -> None:
    images = pictures(12, 24)
    found = CHANGES["resized_crop"](images, generator(1))
    for image, window, ours in zip(images, crop_windows(12, 24, generator(1)).tolist(), found, strict=True):
        top, left, height, width = window
        piece = image[top : top + height, left : left + width].permute(2, 0, 1)[None].double()
        wanted = torch.nn.functional.interpolate(piece, size=(24, 24), mode="bilinear", align_corners=False)[0]
        assert (ours.permute(2, 0, 1) - wanted).abs().max() <= 1
    assert not torch.equal(found, images)


def test_jitter_is_torchvisions_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(6)
    changes = JITTER * (2 * torch.rand((6, 4), generator=generator(2), dtype=torch.float64) - 1)
    assert changes.abs().max() <= 0.4
    wanted = []
    for image, (brightness, contrast, saturation, hue) in zip(images, changes.tolist(), strict=True):
        x = functional.adjust_brightness(image.permute(2, 0, 1), 1 + brightness)
        x = functional.adjust_saturation(functional.adjust_contrast(x, 1 + contrast), 1 + saturation)
        wanted.append(functional.adjust_hue(x, hue).permute(1, 2, 0))
    assert torch.equal(CHANGES["color"](images, generator(2)), torch.stack(wanted))
    monkeypatch.setattr(augmentation, "JITTER", 0.0)
    unchanged = CHANGES["color"](images, generator(2))
    # Hue goes through another colour space and back.
    assert (unchanged.int() - images.int()).abs().max() <= 1


def test_about_a_tenth_of_the_images_are_gray_with_equal_channels() -> None:
    images = pictures(400)
    found = CHANGES["gray"](images, generator()).numpy()
    is_gray = (found == found[..., :1]).all((1, 2, 3))
    assert 20 <= is_gray.sum() <= 60
    assert np.array_equal(found[~is_gray], images.numpy()[~is_gray])
    luma = images.numpy()[is_gray] @ np.array([0.2989, 0.587, 0.114])
    assert np.abs(found[is_gray][..., 0] - luma).max() <= 1


def test_a_crop_is_a_window_of_the_image_with_a_black_margin_of_an_eighth() -> None:
    images = some_images(40).images_NSS3
    cropped = Augmentation(("crop",), 0).apply(torch.from_numpy(images)).numpy()
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    found = set()
    for i in range(40):
        corners = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(padded[i, top : top + 16, left : left + 16], cropped[i])
        ]
        assert len(corners) == 1
        found.add(corners[0])
    assert {top for top, _ in found} == {left for _, left in found} == set(range(5))


def test_a_flip_mirrors_about_half_of_the_images_left_to_right() -> None:
    images = some_images(64).images_NSS3
    flipped = Augmentation(("flip",), 0).apply(torch.from_numpy(images)).numpy()
    is_same = np.array([np.array_equal(flipped[i], images[i]) for i in range(64)])
    is_mirrored = np.array([np.array_equal(flipped[i], images[i][:, ::-1]) for i in range(64)])
    assert np.array_equal(is_mirrored, ~is_same)
    assert 16 <= is_mirrored.sum() <= 48


@pytest.mark.parametrize("names", [*((name,) for name in CHANGES), ("crop", "flip"), tuple(CHANGES)])
def test_augmentation_is_a_function_of_its_seed(names: tuple[str, ...]) -> None:
    images = torch.from_numpy(some_images(30).images_NSS3)
    draws = [[Augmentation(names, seed).apply(images) for _ in range(2)] for seed in (1, 1, 2)]
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[2][0])
    one = Augmentation(names, 1)
    assert not torch.equal(one.apply(images), one.apply(images))


def test_augmentations_of_other_packages_come_last_in_their_order_and_draw_from_the_same_seed() -> None:
    images = torch.randint(0, 256, (6, 16, 16, 3), dtype=torch.uint8)

    def darker(images_BSS3: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return images_BSS3 // 2 + torch.randint(2, (1,), generator=generator).to(torch.uint8)

    def lighter(images_BSS3: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return images_BSS3 + 100

    drawn = [Augmentation((), seed, (darker, lighter)).apply(images) for seed in (1, 1, 2, 3, 4, 5)]
    assert torch.equal(drawn[0], drawn[1])
    assert any(not torch.equal(drawn[0], each) for each in drawn[2:])
    assert drawn[0].min() >= 100


@pytest.mark.parametrize("wrong", [lambda x, _: x.float(), lambda x, _: x[:, 1:], lambda x, _: None])
def test_an_augmentation_that_returns_something_else_is_refused(wrong: Any) -> None:
    images = torch.zeros((2, 16, 16, 3), dtype=torch.uint8)
    with pytest.raises(InvalidConfig, match="it must return uint8 images of the shape that it gets"):
        Augmentation((), 0, (wrong,)).apply(images)
