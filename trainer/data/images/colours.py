"""Colours of a picture as sRGB: converted from those that the ICC profile in its file describes.

LittleCMS converts, with relative colorimetric intent where the profile has one, else as the profile does it. A profile that
cannot be used is said, and its colours are taken as sRGB, as those of a file without one are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO

import numpy as np
from PIL import Image, ImageCms

MAX_PROFILE_BYTES = 4 << 20
"""Longest profile that is used; those of printing presses have one or two MiB."""
SAME = 2
"""Levels of 255 by which a profile may differ from sRGB everywhere and still be sRGB, as its many copies do."""
UNUSED = "its colour profile {why}: its colours are taken as sRGB"
_CLASSES = ("mntr", "scnr", "prtr", "spac")
_MODES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Mode of Pillow for each space of colours that a profile may describe."""
_remarks: ContextVar[list[str] | None] = ContextVar("remarks", default=None)


class _Unusable(Exception):
    """A profile that cannot be used; the text says why."""


@contextmanager
def remarks_on_pictures() -> Iterator[list[str]]:
    """Within the block, collect what there is to say about pictures that this thread reads all the same."""
    said: list[str] = []
    token = _remarks.set(said)
    try:
        yield said
    finally:
        _remarks.reset(token)


def in_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return a picture in sRGB, its transparency as it was.

    Args:
        image: Of mode L, LA, RGB, RGBA or CMYK.
        profile: Its ICC profile; empty or None where its file has one that cannot be had.

    Returns:
        The same picture where the profile is sRGB or cannot be used; else of mode L, LA, RGB or RGBA.
    """
    alpha = image.getchannel("A") if image.mode.endswith("A") else None
    colours = image if alpha is None else image.convert(image.mode[:-1])
    try:
        transform = _transform(profile or b"", colours.mode)
        if transform is None:
            return image
        source = colours if transform.input_mode == colours.mode else colours.convert(transform.input_mode)
        found: Image.Image = ImageCms.applyTransform(source, transform)  # type: ignore[assignment]
    except (_Unusable, ImageCms.PyCMSError) as error:
        why = str(error) if isinstance(error, _Unusable) else "is damaged"
        if (said := _remarks.get()) is not None:
            said.append(UNUSED.format(why=why))
        return image
    if colours.mode == "L":
        found = found.getchannel("G")  # grey stays grey
    if alpha is not None:
        found.putalpha(alpha)
    return found


@lru_cache(maxsize=8)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the conversion of a mode's colours from a profile to sRGB; None where it changes nothing.

    Raises:
        _Unusable: The profile cannot be used for such a picture.
    """
    if not profile:
        raise _Unusable("is damaged")
    if len(profile) > MAX_PROFILE_BYTES:
        raise _Unusable(f"has more than {MAX_PROFILE_BYTES:,} bytes")
    try:
        given = ImageCms.ImageCmsProfile(BytesIO(profile))
        space, kind = given.profile.xcolor_space.strip(), given.profile.device_class
        taken = "RGB" if (mode, space) == ("L", "RGB") else mode
        if kind not in _CLASSES or _MODES.get(space) != taken:
            raise _Unusable(f"is of {space or 'unknown'} colours ({kind}), and its pixels are {mode}")
        to = ImageCms.createProfile("sRGB")
        found = ImageCms.buildTransform(given, to, taken, "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC)
    except _Unusable:
        raise
    # LittleCMS refuses a damaged profile in several ways, and is missing where Pillow was built without it.
    except Exception as error:
        raise _Unusable("cannot be used here" if isinstance(error, ImportError) else "is damaged") from error
    if taken == "CMYK":
        return found
    steps = np.arange(0, 256, 17, dtype=np.uint8)
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    few = ramp if taken == "L" else np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(64, 64, 3)
    shown = np.asarray(ImageCms.applyTransform(Image.fromarray(few.squeeze()), found), np.int16)
    difference = np.abs(shown - few)
    return None if difference.max() <= SAME else found
