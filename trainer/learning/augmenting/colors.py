"""Changes of the colours of a batch, each image by a factor of its own, in some fifty torch operations a batch.

torchvision's functions of the kind take one factor for all images, so they would be called image by image: a thousand
launches a batch, for which a GPU waits. On a processor these have the same results to the bit, up to 256 x 256 pixels.
Images are uint8, `[B, 3, S, S]`, in and out.

Sources: PIL's ImageEnhance, which torchvision follows, for the blends; A. R. Smith, "Color Gamut Transform Pairs", SIGGRAPH
1978, for hue, saturation and value.

Shape legend: B batch, S image size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_SECTORS = ((0, 3, 2), (1, 0, 2), (2, 0, 3), (2, 1, 0), (3, 2, 0), (0, 2, 1))
"""Red, green and blue in each sixth of the circle of hues, as places in (value, falling, lowest, rising)."""


def _functional() -> Any:
    """Return torchvision's functions; loading them takes a second, which only runs that use them spend."""
    from torchvision.transforms.v2 import functional

    return functional


def in_gray(images_B3SS: Tensor) -> Tensor:
    """Return the images in gray, `[B, 1, S, S]`."""
    gray_B1SS: Tensor = _functional().rgb_to_grayscale(images_B3SS)
    return gray_B1SS


def brightened(images_B3SS: Tensor, factor_B: Tensor) -> Tensor:
    """Return the images times their factors."""
    return _bytes(images_B3SS * _column(factor_B))


def contrasted(images_B3SS: Tensor, factor_B: Tensor) -> Tensor:
    """Return the images blended with the mean gray of each: 0 is gray, 1 the image."""
    # Sums of bytes are exact in float32 up to 256 x 256 pixels, in whatever order they are taken.
    mean_B111 = in_gray(images_B3SS).mean((1, 2, 3), keepdim=True, dtype=torch.float32)
    return _blended(images_B3SS, mean_B111, factor_B)


def saturated(images_B3SS: Tensor, factor_B: Tensor) -> Tensor:
    """Return the images blended with their gray ones: 0 is gray, 1 the image."""
    return _blended(images_B3SS, in_gray(images_B3SS), factor_B)


def hue_turned(images_B3SS: Tensor, turn_B: Tensor) -> Tensor:
    """Return the images with their hues turned, each by a share of the circle from -1/2 to 1/2."""
    functional = _functional()
    colors_B3SS = functional.to_dtype(images_B3SS, torch.float32, scale=True)
    darkest_BSS, value_BSS = torch.aminmax(colors_B3SS, dim=1)
    spread_BSS = value_BSS - darkest_BSS
    is_gray_BSS = spread_BSS == 0
    divisor_BSS = spread_BSS.masked_fill(is_gray_BSS, 1.0)
    red_BSS, green_BSS, blue_BSS = ((value_BSS[:, None] - colors_B3SS) / divisor_BSS[:, None]).unbind(1)
    direction_BSS = torch.where(
        colors_B3SS[:, 0] == value_BSS,
        blue_BSS - green_BSS,
        torch.where(colors_B3SS[:, 1] == value_BSS, red_BSS + 2 - blue_BSS, green_BSS + 4 - red_BSS),
    )
    hue_BSS = (direction_BSS * (1 / 6) + 1).fmod(1)
    saturation_BSS = spread_BSS / value_BSS.masked_fill(is_gray_BSS, 1.0)

    sixths_BSS = (hue_BSS + turn_B.to(torch.float32)[:, None, None]).remainder(1) * 6
    sector_BSS = sixths_BSS.floor()
    part_BSS = (sixths_BSS - sector_BSS) * saturation_BSS
    rest_BSS = 1 - saturation_BSS
    falling_BSS, rising_BSS, lowest_BSS = (
        (share_BSS * value_BSS).clamp(0, 1) for share_BSS in (1 - part_BSS, part_BSS + rest_BSS, rest_BSS)
    )
    places_63 = torch.tensor(_SECTORS, device=images_B3SS.device)
    places_B3SS = places_63[sector_BSS.long().remainder(6)].movedim(-1, 1)
    found_B3SS = torch.stack((value_BSS, falling_BSS, lowest_BSS, rising_BSS), 1).gather(1, places_B3SS)
    turned_B3SS: Tensor = functional.to_dtype(found_B3SS, torch.uint8, scale=True)
    return turned_B3SS


def _blended(images_B3SS: Tensor, other_B1SS: Tensor, factor_B: Tensor) -> Tensor:
    """Return factor times image plus (1 - factor) times other, of which torch's `add` rounds product and sum once."""
    scaled_B3SS = images_B3SS * _column(factor_B)
    rest_B = (1 - factor_B).to(torch.float32)
    return _bytes((scaled_B3SS.double() + other_B1SS.double() * _column(rest_B).double()).float())


def _column(factor_B: Tensor) -> Tensor:
    return factor_B.to(torch.float32)[:, None, None, None]


def _bytes(values_B3SS: Tensor) -> Tensor:
    return values_B3SS.clamp_(0, 255).to(torch.uint8)
