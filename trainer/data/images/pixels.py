"""Pixels of a picture as its file means them, as 8-bit RGB.

Palettes and other colours are converted, a camera's orientation is followed, what is transparent shows white behind it, and
numbers of more than 8 bits are scaled from the range that the file states, or that `data.window` does. A picture whose range
nobody states is refused: a guess would make it almost black, or almost white, without a word.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from fedplcc.trainer.data.images.dicom import read_dicom
from fedplcc.trainer.data.images.endings import DICOM_ENDINGS, NUM_BYTES, begins_as_dicom
from fedplcc.trainer.data.images.scaling import Pixels, Unreadable, Unstated, Window, scale

WHITE = (255, 255, 255, 255)
"""What shows through transparent pixels."""
UNSAID = "its {what} state no range, and the largest is {top:g}; set data.window in numbers, or to 'auto'"
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_RANGES = ((280, 281), (340, 341))
"""Tags of TIFF: MinSampleValue with MaxSampleValue, SMinSampleValue with SMaxSampleValue."""
_SIGNED = 2
_ORIENTED = ("exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp")
"""Keys of a picture's information that may state how it is turned."""


def read_pixels(path: Path, window: Window = None, frame: int | None = None) -> Pixels:
    """Return a file's image as RGB: the first one, and of DICOM's the named frame.

    Args:
        path: The file.
        window: See `Window`; "auto" counts as none here.
        frame: Number of the frame, from 1.

    Raises:
        Unreadable: It is no image, or damaged, or states no range.
    """
    try:
        return _read(path, window, frame)
    except Unreadable:
        raise
    # Pillow's decoders raise anything on a damaged file; one bad file must not end a run.
    except Exception as error:
        raise Unreadable(_reason(error)) from error


def why_unreadable(path: Path, window: Window = None, frame: int | None = None) -> str:
    """Return why a file cannot be read; empty if it can."""
    try:
        read_pixels(path, window, frame)
    except Unreadable as error:
        return str(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it has more than {Image.MAX_IMAGE_PIXELS or 0:,} pixels"
    if isinstance(error, UnidentifiedImageError):
        return "it is no image that can be read here"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "it is damaged or cut off"


def _read(path: Path, window: Window, frame: int | None) -> Pixels:
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable("it is no regular file but a folder, pipe, socket or device")
    if not found.st_size:
        raise Unreadable("it is empty")
    if path.suffix.lower() in DICOM_ENDINGS or (path.suffix.lower() != ".jpg" and _is_dicom(path)):
        return read_dicom(path, window, frame)
    with Image.open(path) as image:
        tiles: list[Any] = list(getattr(image, "tile", []))
        is_halved = any(";16" in str(tile[-1]) for tile in tiles)
        pixels = picture(image, window)
        if is_halved and not _numeric(image):
            _check_halved(pixels, window)
        return pixels


def _is_dicom(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        return begins_as_dicom(file.read(NUM_BYTES))


def _check_halved(pixels: Pixels, window: Window) -> None:
    """Refuse colours of 16 bits, of which Pillow gives the upper 8, where those do not hold the picture."""
    if isinstance(window, tuple) and tuple(window) != (0, 65535):
        raise Unreadable("data.window cannot be applied to colours of 16 bits; convert the file")
    if window is None and pixels.max(initial=0) < 64:
        raise Unstated(UNSAID.format(what="colours of 16 bits", top=float(pixels.max(initial=0)) * 256))
    if window == "auto" and pixels.max(initial=0) < 64:
        raise Unreadable("colours of 16 bits of which few are used; convert the file")


def picture(image: Image.Image, window: Window = None) -> Pixels:
    """Return a picture of Pillow as RGB.

    Raises:
        Unreadable: It states no range, or has numbers that are none.
    """
    image.load()
    signed = _tag(image, _SAMPLE_FORMAT) == _SIGNED
    if any(key in image.info for key in _ORIENTED):
        is_inverted, stated = _is_inverted(image), _stated_range(image)
        image = ImageOps.exif_transpose(image)
    else:
        is_inverted, stated = _is_inverted(image), _stated_range(image)
    if _numeric(image) or signed:
        values = _values(image, signed)
        scaled = scale(values, window if isinstance(window, tuple) else stated or whole_range(values))
        if is_inverted:
            scaled = 255 - scaled
        return np.repeat(scaled[:, :, None], 3, axis=2)
    if image.mode == "RGB" and "transparency" not in image.info:
        return np.asarray(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _over_white(image)
    return np.asarray(image.convert("RGB"))


def _over_white(image: Image.Image) -> Pixels:
    shown = image.convert("LA") if image.mode == "La" else image
    shown = shown.convert("RGBA")
    if shown.getchannel("A").getextrema() == (255, 255):
        return np.asarray(shown.convert("RGB"))
    return np.asarray(Image.alpha_composite(Image.new("RGBA", shown.size, WHITE), shown).convert("RGB"))


def _numeric(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def numbers_of(path: Path) -> npt.NDArray[Any] | None:
    """Return the numbers of a file whose range is not stated; None where it is, or it has colours.

    Raises:
        Unreadable: It cannot be read.
    """
    try:
        with Image.open(path) as image:
            if not (_numeric(image) or _tag(image, _SAMPLE_FORMAT) == _SIGNED) or _stated_range(image) is not None:
                return None
            image.load()
            return _values(image, _tag(image, _SAMPLE_FORMAT) == _SIGNED)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(_reason(error)) from error


def _tag(image: Image.Image, number: int) -> Any:
    """Return the first value of a tag of TIFF; None without it."""
    value = (getattr(image, "tag_v2", None) or {}).get(number)
    return value[0] if isinstance(value, tuple) and value else value


def _is_inverted(image: Image.Image) -> bool:
    """Whether 0 is white: Pillow follows this for 8 bits and fewer alone."""
    return _numeric(image) and getattr(image, "format", None) == "TIFF" and _tag(image, _PHOTOMETRIC) == 0


def _stated_range(image: Image.Image) -> tuple[float, float] | None:
    if getattr(image, "format", None) in ("PPM", "JPEG2000") and image.mode.startswith("I"):
        return 0, 65535  # Pillow scales both from the depth that they state
    for low, high in _RANGES:
        bottom, top = _tag(image, low), _tag(image, high)
        if isinstance(top, int | float) and top > (bottom or 0):
            return float(bottom or 0), float(top)
    bits = _tag(image, _BITS)
    if (
        isinstance(bits, int)
        and image.mode.startswith("I")
        and 8 < bits < 16
        and _tag(image, _SAMPLE_FORMAT) != _SIGNED
    ):
        return 0, 2**bits - 1
    return None


def _values(image: Image.Image, signed: bool) -> npt.NDArray[Any]:
    values = np.asarray(image)
    if values.ndim != 2:
        raise Unreadable("it has several channels of signed numbers")
    bits = _tag(image, _BITS)
    return _of_type(values, bits, signed=signed, is_tiff=getattr(image, "format", None) == "TIFF")


def _of_type(values: npt.NDArray[Any], bits: Any, *, signed: bool, is_tiff: bool) -> npt.NDArray[Any]:
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
