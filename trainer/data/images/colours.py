"""Colours of a picture as sRGB: converted from those that the ICC profile in its file describes.

LittleCMS converts, with relative colorimetric intent where the profile has one, else as the profile does it. A PNG without a
profile may state a curve alone, which is followed. What cannot be used is said, and the colours are taken as sRGB, as those
of a file that states nothing are. Profiles are not compared by name: sRGB has dozens of copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageCms

MAX_PROFILE_BYTES = 4 << 20
"""Longest profile that is used; those of printing presses have one or two MiB."""
SAME = 2
"""Levels of 255 by which a profile may differ from sRGB everywhere and still be sRGB, as its many copies do."""
UNUSED = "its colour profile {why}: its colours are taken as sRGB"
PROFILE = "icc_profile"
"""Key of a picture's information that has its ICC profile; None there where the file's one cannot be had."""
GAMMA = 1 / 2.2
"""Exponent of sRGB's curve from light to numbers, as PNG states it; one within 5 % of it counts as sRGB's, as for libpng."""
PRIMARIES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
"""White, red, green and blue of sRGB, x and y, as PNG states them."""
_UNCALIBRATED, _ADOBE = 65535, "R03"
"""What EXIF says of the space of colours, and as the rule of interoperability, where they are Adobe RGB (DCF 2.0)."""
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


def say(text: str) -> None:
    """Say something about a picture that is read all the same."""
    if (said := _remarks.get()) is not None:
        said.append(text)


def stated_gamma(image: Image.Image) -> float | None:
    """Return the exponent from light to numbers that a PNG states without a profile; None where it is sRGB's, or unstated.

    Colours that a file states in a way that is not followed are said.
    """
    if PROFILE in image.info or "srgb" in image.info:
        return None
    primaries, gamma = image.info.get("chromaticity"), image.info.get("gamma")
    if primaries is not None and image.mode[0] not in "1LI" and not np.allclose(primaries, PRIMARIES, atol=0.005):
        say("its file states primaries of colours without a profile: they are taken as sRGB's")
    if "exif" in image.info and _is_adobe(image.getexif()):
        say("its EXIF states Adobe RGB without a profile: its colours are taken as sRGB")
    if gamma is None or abs(gamma / GAMMA - 1) <= 0.05:
        return None
    if not 0.05 <= gamma <= 20:
        say(f"its file states the gamma {gamma:g}: its numbers are taken as sRGB")
        return None
    return float(gamma)


def _is_adobe(exif: Image.Exif) -> bool:
    if exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.ColorSpace) != _UNCALIBRATED:
        return False
    return str(exif.get_ifd(ExifTags.IFD.Interop).get(ExifTags.Interop.InteropIndex, "")).startswith(_ADOBE)


def of_gamma(shares: npt.NDArray[np.float64], gamma: float) -> npt.NDArray[np.float64]:
    """Return numbers between 0 and 1 in sRGB's curve (IEC 61966-2-1), of those that are light to this exponent."""
    light = shares ** (1 / gamma)
    shown: npt.NDArray[np.float64] = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return shown


def with_gamma(image: Image.Image, gamma: float) -> Image.Image:
    """Return a picture of mode L, LA, RGB or RGBA in sRGB's curve, its transparency as it was."""
    curve = np.rint(255 * of_gamma(np.arange(256) / 255, gamma)).astype(int).tolist()
    colours = len(image.mode.removesuffix("A"))
    return image.point(curve * colours + list(range(256)) * (len(image.mode) - colours))


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
        say(UNUSED.format(why=why))
        return image
    if colours.mode == "L":
        found = found.getchannel("G")  # grey stays grey
    if alpha is not None:
        found.putalpha(alpha)
    return found


@lru_cache(maxsize=8)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the conversion of a mode's colours from a profile to sRGB; None where it changes nothing."""
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
