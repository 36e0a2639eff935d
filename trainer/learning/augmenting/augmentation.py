"""Random changes to training images, drawn in host memory so that the draws are the same on every device.

In each batch they come in this order, whatever their order in the configuration: crop, resized_crop, flip, color, gray, and
then those of other packages. All of them make uint8 images of uint8 images.

`resized_crop`, `color` and `gray` are torchvision's RandomResizedCrop, ColorJitter and RandomGrayscale with the numbers of
the benchmark MarsFL, https://github.com/WenkeHuang/MarsFL. The operations are torchvision's, the draws are made
here. Each draws from a generator of its own, so that it changes no draw of another. ColorJitter draws the order of its four
operations too; here it is brightness, contrast, saturation, hue.

Shape legend: B batch, S image size, T tries.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedplcc.shared.config.tables.run_tables import TrainingSection
from fedplcc.shared.errors import InvalidConfig
from fedplcc.trainer.factories import import_factory
from fedplcc.trainer.learning.augmenting import colors
from fedplcc.trainer.reproducibility.randomness import derive_seed

ImageChange = Callable[[Tensor, torch.Generator], Tensor]
"""A change: from uint8 images `[B, S, S, 3]` and the generator of its draws, which is in host memory, to changed ones."""

LEAST_AREA = 0.7
"""Smallest share of an image's area that `resized_crop` takes."""
LARGEST_RATIO = 4 / 3
"""Largest ratio of the sides of what `resized_crop` takes."""
TRIES = 10
"""Windows that `resized_crop` draws for an image until one fits into it; the whole image is taken if none does."""
JITTER = 0.4
"""Largest change of brightness, contrast and saturation by `color`, as a share, and of hue, as a share of the circle."""
GRAY_PROBABILITY = 0.1


def of_packages(training: TrainingSection) -> list[ImageChange]:
    """Return the augmentations that are code of other packages, of whose use `TaskInputs.config` has asked for consent."""
    return [import_factory(name, InvalidConfig)() for name in training.augmentation_code]


def cropped(images_BSS3: Tensor, generator: torch.Generator) -> Tensor:
    """Return a window of the images' size anywhere in each image with a black margin of an eighth."""
    batch_size, side, device = len(images_BSS3), images_BSS3.shape[1], images_BSS3.device
    margin = side // 8
    padded = pad(images_BSS3, (0, 0, margin, margin, margin, margin))
    corners_2B = torch.randint(2 * margin + 1, (2, batch_size), generator=generator).to(device)
    rows_BS, columns_BS = corners_2B[:, :, None] + torch.arange(side, device=device)
    return padded[torch.arange(batch_size, device=device)[:, None, None], rows_BS[:, :, None], columns_BS[:, None, :]]


def flipped(images_BSS3: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images, about half of them mirrored left to right."""
    is_flipped_B = torch.rand(len(images_BSS3), generator=generator) < 0.5
    return torch.where(_column(is_flipped_B, images_BSS3), images_BSS3.flip(2), images_BSS3)


def crop_windows(batch_size: int, side: int, generator: torch.Generator) -> Tensor:
    """Return top, left, height and width of a window for each image, int64 `[B, 4]` in host memory.

    The area is uniform between `LEAST_AREA` and 1 of the image's, the logarithm of width over height between those of 3/4
    and 4/3, the corner among all that keep the window within the image.
    """
    draws_2TB = torch.rand((2, TRIES, batch_size), generator=generator, dtype=torch.float64)
    area_TB = side**2 * (LEAST_AREA + (1 - LEAST_AREA) * draws_2TB[0])
    ratio_TB = torch.exp(math.log(LARGEST_RATIO) * (2 * draws_2TB[1] - 1))
    height_TB, width_TB = (area_TB / ratio_TB).sqrt().round(), (area_TB * ratio_TB).sqrt().round()
    fits_TB = torch.maximum(height_TB, width_TB) <= side
    first_B = fits_TB.to(torch.uint8).argmax(0)
    sizes_2B = torch.stack((height_TB, width_TB)).gather(1, first_B.expand(2, 1, batch_size))[:, 0]
    sizes_2B = torch.where(fits_TB.any(0), sizes_2B, float(side))
    corners_2B = torch.rand((2, batch_size), generator=generator, dtype=torch.float64) * (side + 1 - sizes_2B)
    return torch.cat((corners_2B.floor(), sizes_2B)).to(torch.int64).T


def resized_crops(images_BSS3: Tensor, generator: torch.Generator) -> Tensor:
    """Return a window of each image, brought to the images' size (bilinear)."""
    from torchvision.transforms.v2.functional import resized_crop  # takes a second

    batch_size, side = images_BSS3.shape[:2]
    windows = crop_windows(batch_size, side, generator).tolist()
    made = [
        # A window is never made smaller, which is what antialiasing would be for.
        resized_crop(image_3SS, *window, size=[side, side], antialias=False)
        for image_3SS, window in zip(images_BSS3.permute(0, 3, 1, 2), windows, strict=True)
    ]
    return torch.stack(made).permute(0, 2, 3, 1)


def jittered(images_BSS3: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images with other brightness, contrast, saturation and hue, in this order.

    Three factors are uniform between 1 - `JITTER` and 1 + `JITTER`, the change of hue between -`JITTER` and `JITTER`.
    """
    draws_B4 = torch.rand((len(images_BSS3), 4), generator=generator, dtype=torch.float64)
    change_4B = (JITTER * (2 * draws_B4 - 1)).T.to(images_BSS3.device)
    images_B3SS = colors.brightened(images_BSS3.permute(0, 3, 1, 2), 1 + change_4B[0])
    images_B3SS = colors.contrasted(images_B3SS, 1 + change_4B[1])
    images_B3SS = colors.saturated(images_B3SS, 1 + change_4B[2])
    return colors.hue_turned(images_B3SS, change_4B[3]).permute(0, 2, 3, 1)


def grayed(images_BSS3: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images, about a tenth of them gray: three equal channels."""
    is_gray_B = torch.rand(len(images_BSS3), generator=generator) < GRAY_PROBABILITY
    gray_BSS1 = colors.in_gray(images_BSS3.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    return torch.where(_column(is_gray_B, images_BSS3), gray_BSS1, images_BSS3)


CHANGES: Mapping[str, ImageChange] = MappingProxyType(
    {"crop": cropped, "resized_crop": resized_crops, "flip": flipped, "color": jittered, "gray": grayed}
)
"""This package's changes by name, in the order in which they are made."""
TOGETHER = frozenset({"crop", "flip"})
"""Changes that draw from the generator of all changes of other packages, as they did before there were others."""


class Augmentation:
    """Random changes to training images, one batch after the other."""

    def __init__(self, names: Sequence[str], seed: int, others: Sequence[ImageChange] = ()) -> None:
        """Prepare.

        Args:
            names: Keys of `CHANGES`; others are left out.
            others: Changes of other packages, made after these in their order, on images in host memory.
        """
        together = torch.Generator().manual_seed(seed)
        self._changes = [
            (change, together if name in TOGETHER else torch.Generator().manual_seed(derive_seed(name, seed)))
            for name, change in CHANGES.items()
            if name in names
        ]
        self._others = [(change, together) for change in others]
        self._views = torch.Generator().manual_seed(derive_seed("views", seed))

    def apply(self, images_BSS3: Tensor) -> Tensor:
        """Return the changed images, uint8 `[B, S, S, 3]`."""
        for change, generator in self._changes:
            images_BSS3 = change(images_BSS3, generator)
        for change, generator in self._others:
            images_BSS3 = _checked(change(images_BSS3.cpu(), generator), images_BSS3)
        return images_BSS3

    def view_numbers(self, num_views: int, batch_size: int) -> Tensor:
        """Return which view of each image is taken, int64 `[B]` in host memory; 0 is the image as it is."""
        return torch.randint(num_views + 1, (batch_size,), generator=self._views)


def view_of(image_SS3: Tensor, names: Sequence[str], number: int) -> Tensor:
    """Return a changed copy of an image, uint8 `[S, S, 3]` in host memory: a function of its pixels and of these alone.

    Args:
        names: Keys of `CHANGES`.
        number: Which copy, from 1.
    """
    pixels = hashlib.sha256(image_SS3.numpy().tobytes()).hexdigest()
    return Augmentation(names, derive_seed("view", pixels, number)).apply(image_SS3[None])[0]


def _column(mask_B: Tensor, images_BSS3: Tensor) -> Tensor:
    return mask_B.to(images_BSS3.device)[:, None, None, None]


def _checked(found: object, images_BSS3: Tensor) -> Tensor:
    """Return what another package's augmentation made of images, on their device."""
    if not isinstance(found, Tensor) or found.dtype != torch.uint8 or found.shape != images_BSS3.shape:
        what = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise InvalidConfig(
            f"an augmentation of training.augment returned {what}; it must return uint8 images of the shape that it "
            f"gets, {list(images_BSS3.shape)}"
        )
    return found.to(images_BSS3.device)
