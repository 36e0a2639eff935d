"""Numbers of an image as 8-bit pixels, and the refusal of an image without any.

A range that nobody states is not guessed: by each image's own largest value one scan would be brighter than the next.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""One image, height x width x (1 or 3)."""
Window: TypeAlias = "tuple[float, float] | Literal['auto'] | None"
"""The values that become black and white, for pictures whose range the file does not state; see `[data] window`."""
UNSAID = "its {what} state no range, and the largest is {top:g}; set data.window in numbers, or to 'auto'"


class Unreadable(Exception):
    """A file or a picture without pixels that anyone could vouch for; the text is the reason, without the file's name."""


class Unstated(Unreadable):
    """A picture whose range nobody states."""


class Unnamed(Unreadable):
    """A file of several frames of which none is named."""


def scale(values: npt.NDArray[Any], window: tuple[float, float]) -> Pixels:
    """Return numbers as 0 to 255: whole numbers in 256 equal steps, so that 16 bits keep their upper 8; others rounded.

    Args:
        values: Of any shape; those outside the window become black or white.
        window: What becomes 0, and what 255.

    Raises:
        Unreadable: A number is infinite or none.
    """
    low, high = window
    wide = values.astype(np.float64)
    if values.dtype.kind == "f" and not np.isfinite(wide).all():
        raise Unreadable("it has numbers that are infinite or none")
    if values.dtype.kind in "iu" and float(low).is_integer() and float(high).is_integer() and high - low >= 255:
        steps = np.floor((wide - low) * (256.0 / (high - low + 1)))
    else:
        steps = np.rint((wide - low) * (255.0 / (high - low)))
    found: Pixels = np.clip(steps, 0, 255).astype(np.uint8)
    return found


def of_type(values: npt.NDArray[Any], bits: Any, *, signed: bool, is_tiff: bool) -> npt.NDArray[Any]:
    """Return numbers in the type that the file has them in: Pillow takes some for others."""
    if values.dtype == np.uint8 and signed:
        return values.view(np.int8)
    if values.dtype == np.uint16 and signed:
        return values.view(np.int16)
    if values.dtype == np.int32 and signed and bits == 16:
        return values.astype(np.int16)
    if values.dtype == np.int32 and bits == 32 and not signed and is_tiff:
        return values.view(np.uint32)
    if values.dtype == np.int32 and not is_tiff and values.min(initial=0) >= 0 and values.max(initial=0) <= 65535:
        return values.astype(np.uint16)
    return values


def has_all_bits(values: npt.NDArray[Any], *, is_shifted: bool) -> bool:
    """Whether numbers of 16 bits are none of 14 or fewer that were brought to 16, by shifts or as shares of the highest."""
    if is_shifted:
        return bool(np.bitwise_or.reduce(values, axis=None) & 0b11)
    return bool(np.diff(np.unique(values)).min(initial=4) < 4)


def whole_range(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the range of the numbers' type, where they use it.

    Raises:
        Unreadable: They use less than a quarter of it, as 12 bits in 16 do, or have fractions, which have no range.
    """
    top = float(values.max(initial=0))
    if values.dtype.kind not in "iu":
        raise Unstated(UNSAID.format(what="fractions", top=top))
    kind = np.iinfo(values.dtype)
    reached = max(abs(top), abs(float(values.min(initial=0))))
    if kind.bits > 8 and reached < (kind.max + 1) / (4 if kind.min == 0 else 2):
        raise Unstated(UNSAID.format(what=f"numbers of {kind.bits} bits", top=top))
    return float(kind.min), float(kind.max)


def auto_window(lowest: float, highest: float, is_whole: bool) -> tuple[float, float]:
    """Return the window of all pictures of a site, from the lowest and highest of their numbers.

    Whole numbers from 0 have the smallest of 8, 10, 12, 14, 16 and 32 bits that holds all; other numbers their own range.
    """
    if is_whole and lowest >= 0:
        return 0.0, float(next(2**bits - 1 for bits in (8, 10, 12, 14, 16, 32) if highest < 2**bits))
    return (lowest, highest) if highest > lowest else (lowest, lowest + 1)
