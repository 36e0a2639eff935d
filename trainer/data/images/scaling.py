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
