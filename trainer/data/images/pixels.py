"""Pixels of a picture as its file means them, as 8-bit RGB.

Palettes and other colours are converted, those of an ICC profile to sRGB, a camera's orientation is followed, what is
transparent shows white behind it, and numbers of more than 8 bits are scaled from the range that the file states, or that
`data.window` does. A picture whose range nobody states is refused: a guess would make it almost black, or almost white,
without a word.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, PngImagePlugin, UnidentifiedImageError

from fedplcc.trainer.data.images.colours import PROFILE, in_srgb, of_gamma, say, stated_gamma, with_gamma
from fedplcc.trainer.data.images.dicom import check_frame, read_dicom
from fedplcc.trainer.data.images.endings import DICOM_ENDINGS, FORMATS, IMAGE_ENDINGS, NUM_BYTES, begins_as_dicom
from fedplcc.trainer.data.images.jpeg import PixelData
from fedplcc.trainer.data.images.scaling import (
    UNSAID,
    Pixels,
    Unreadable,
    Unstated,
    Window,
    has_all_bits,
    of_type,
    scale,
    whole_range,
)

WHITE = (255, 255, 255, 255)
"""What shows through transparent pixels."""
UNNAMED = "it has four channels and does not say what the fourth is; convert it to RGB"
_SUBFILE, _BITS, _PHOTOMETRIC, _PLANES, _EXTRA, _SAMPLE_FORMAT = 254, 258, 262, 284, 338, 339
_COLOURS, _PARTS, _INKS = 320, 330, 332
_REDUCED_OR_MASK = 0b101
"""Bits of a page's subfile type: it is a smaller copy of another page, or its mask."""
_TAIL = 64
"""Bytes of zeros at a file's end of which a copy that broke off is suspected."""
_RANGES = ((280, 281), (340, 341))
"""Tags of TIFF: MinSampleValue with MaxSampleValue, SMinSampleValue with SMaxSampleValue."""
_SIGNED = _SEPARATE = _OTHER_INKS = 2
_RAW = ("BMP", "DIB", "DDS", "PCX", "PPM", "SGI", "TGA", "TIFF")
"""Formats whose pixels may be zeros up to the end of a whole file."""
_ORIENTED = ("exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp")
"""Keys of a picture's information that may state how it is turned."""


def read_pixels(path: Path, window: Window = None, frame: int | None = None) -> Pixels:
    """Return a file's image as RGB: the named frame, else the first one; a stack, of DICOM or TIFF, needs a name.

    Args:
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
    if "MAX_TEXT_CHUNK" in str(error):
        return f"its colour profile, or a text in it, has more than {PngImagePlugin.MAX_TEXT_CHUNK:,} bytes"
    if isinstance(error, UnidentifiedImageError):
        return "it is no image that can be read here"
    if isinstance(error, SyntaxError) and "not a TIFF file" in str(error):
        return "its EXIF, which may say how it is turned, is damaged"
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
    ending = path.suffix.lower()
    if ending in DICOM_ENDINGS or (ending not in IMAGE_ENDINGS and _is_dicom(path)):
        return read_dicom(path, window, frame)
    # Of a plain TIFF that is opened by its name Pillow maps the bytes, and then does not turn it as it says.
    with path.open("rb") as file:
        try:
            with Image.open(file) as image:
                return _of_file(image, file, window, frame)
        except UnidentifiedImageError:
            if _is_dicom(path):
                return read_dicom(path, window, frame)
            raise


def _of_file(image: Image.Image, file: IO[bytes], window: Window, frame: int | None) -> Pixels:
    _check_format(image)
    _choose(image, frame)
    kind = image.format or ""
    if _breaks_off(file, kind):
        raise Unreadable("it is cut off: from some place on it has nothing but zeros")
    if kind == "PNG" and _states_cicp(file.fileno()):
        say("its file states other colours than sRGB (cICP): they are taken as sRGB")
    _check_channels(image)
    tiles = " ".join(str(tile[-1]) for tile in getattr(image, "tile", []))
    is_halved, clear = ";16" in tiles or _is_of_16_bits(kind, tiles, file.fileno()), image.info.get("transparency")
    if is_halved and isinstance(clear, tuple):
        raise Unreadable(
            "its one transparent colour is of 16 bits, and its colours can be had in 8 alone; convert the file"
        )
    if image.format == "PNG" and isinstance(clear, int) and (few := re.search("L;([24])", tiles)):
        image.info["transparency"] = clear * (255 // (2 ** int(few[1]) - 1))  # Pillow scales the pixels alone
    is_unnamed = kind == "TGA" and image.mode == "RGBA" and not os.pread(file.fileno(), 1, 17)[0] & 0b1111
    if is_unnamed and image.getchannel("A").getextrema() != (255, 255):
        raise Unreadable(UNNAMED)
    data = PixelData(image, file.fileno()) if kind == "JPEG" else None
    pixels = picture(image, window)
    if data is not None and data.has_lost_a_part:
        raise Unreadable("a part in its middle is lost: zeros stand for it")
    if data is not None and data.misfits:
        say("its pixel data do not fit its size: a part of the picture may be damaged")
        file.seek(0)
        with Image.open(file) as whole:
            pixels = picture(whole, window)
    if is_halved and not _numeric(image):
        _check_halved(image, window)
    if kind in _RAW and pixels.any() and _ends_black(file.fileno()):
        say("the second half of its file is zeros: it is black there, or its copying broke off")
    return pixels


def _check_channels(image: Image.Image) -> None:
    """Refuse channels of TIFF that Pillow gives as something else, and inks of which nobody says where white is."""
    if image.format in ("JPEG", "MPO") and image.mode == "CMYK" and "adobe" not in image.info:
        raise Unreadable("it has four inks and does not say whether 0 is none or all of an ink; convert it to RGB")
    if image.format != "TIFF":
        return
    if image.mode == "P" and 0 < max(getattr(image, "tag_v2", {}).get(_COLOURS, (0,))) < 256:
        raise Unreadable("its table of colours has entries of 16 bits, and uses the lower 8; convert the file")
    if image.mode == "CMYK" and _tag(image, _INKS) == _OTHER_INKS:
        raise Unreadable("its four inks are not those of CMYK; convert it to RGB")
    if image.mode == "RGBA" and _tag(image, _EXTRA) is None:
        raise Unreadable(UNNAMED)
    if _tag(image, _PLANES) == _SEPARATE and (_tag(image, _BITS) or 1) > 8 and len(image.getbands()) > 1:
        raise Unreadable("its colours of more than 8 bits lie in planes, one after the other; convert the file")


def _check_format(image: Image.Image) -> None:
    kind = getattr(image, "format", None)
    if kind is not None and kind not in FORMATS:
        raise Unreadable(f"it is a picture of the kind {kind}, which is not read here; convert it to PNG")


def _choose(image: Image.Image, frame: int | None) -> None:
    """Turn to a frame, of those that are one picture each: of a moving picture or TIFF."""
    if frame is not None:
        check_frame(frame, getattr(image, "n_frames", 1))
        image.seek(frame - 1)
    elif image.format == "TIFF":
        areas, whole = [], []
        for page in range(getattr(image, "n_frames", 1)):
            image.seek(page)
            areas.append(image.width * image.height)
            whole += [] if (_tag(image, _SUBFILE) or 0) & _REDUCED_OR_MASK else [page]
        first = whole[0] if whole else 0
        check_frame(None, max(1, sum(areas[page] >= areas[first] for page in whole)))
        image.seek(first)
        if not whole and _tag(image, _PARTS):
            raise Unreadable("it shows a small copy of a camera's raw picture; develop it")


def _states_cicp(descriptor: int) -> bool:
    """Whether a PNG states its colours as those of a video, other than sRGB's: Pillow takes no notice of it."""
    place = 8
    for _ in range(64):  # chunks before the pixels
        head = os.pread(descriptor, 12, place)
        if head[4:8] in (b"", b"IDAT", b"IEND"):
            return False
        if head[4:8] == b"cICP":
            return head[8:10] != bytes((1, 13))
        place += 12 + int.from_bytes(head[:4])
    return False


def _is_of_16_bits(kind: str, tiles: str, descriptor: int) -> bool:
    """Whether a PPM or JPEG 2000 has all 16 bits, of which Pillow gives the upper 8 of colours."""
    if kind == "PPM":
        return "65535" in tiles
    head = os.pread(descriptor, 1 << 16, 0) if kind == "JPEG2000" else b""
    place = head.find(b"\xff\x4f\xff\x51")  # its codestream; the depth of the first channel is 42 bytes on
    return place >= 0 and head[place + 42 : place + 43] == b"\x0f"


def _ends_black(descriptor: int) -> bool:
    """Whether the second half of a file is zeros."""
    length = os.fstat(descriptor).st_size
    if os.pread(descriptor, _TAIL, max(0, length - _TAIL)).strip(b"\0"):
        return False
    return not os.pread(descriptor, length, length // 2).strip(b"\0")


def _breaks_off(file: IO[bytes], kind: str) -> bool:
    """Whether a file ends in zeros as one does whose copying broke off, where decoders would fill in colours.

    A JPEG of which the zeros come after its mark is whole, and a WebP ends where its head says.
    """
    if kind not in ("JPEG", "MPO", "WEBP", "AVIF", "QOI"):
        return False
    descriptor = file.fileno()  # read beside the decoder, whose place in the file stays
    length = os.fstat(descriptor).st_size
    if kind == "WEBP":
        length = min(length, 8 + int.from_bytes(os.pread(descriptor, 4, 4), "little"))
    if os.pread(descriptor, min(_TAIL, length), max(0, length - _TAIL)).strip(b"\0"):
        return False
    return kind not in ("JPEG", "MPO") or not os.pread(descriptor, length, 0).rstrip(b"\0").endswith(b"\xff\xd9")


def _is_dicom(path: Path) -> bool:
    with path.open("rb") as file:
        return begins_as_dicom(file.read(NUM_BYTES))


def _check_halved(image: Image.Image, window: Window) -> None:
    """Refuse colours of 16 bits, of which Pillow gives the upper 8, where those do not hold the picture."""
    if isinstance(window, tuple) and tuple(window) != (0, 65535):
        raise Unreadable("data.window cannot be applied to colours of 16 bits; convert the file")
    if isinstance(window, tuple):
        return
    shown = np.asarray(image.convert("RGBA"))
    top = int(shown[shown[:, :, 3] > 0][:, :3].max(initial=0))  # what is transparent may have any colour
    if window is None and top < 64:
        raise Unstated(UNSAID.format(what="colours of 16 bits", top=float(top) * 256))
    if window == "auto" and top < 64:
        raise Unreadable("colours of 16 bits of which few are used; convert the file")


def picture(image: Image.Image, window: Window = None) -> Pixels:
    """Return a picture of Pillow as RGB.

    Raises:
        Unreadable: It states no range, or has numbers that are none.
    """
    _check_format(image)
    is_inverted, stated = _is_inverted(image), _stated_range(image)
    image.load()
    signed = _tag(image, _SAMPLE_FORMAT) == _SIGNED
    if any(key in image.info for key in _ORIENTED):
        image = ImageOps.exif_transpose(image)
    if _numeric(image) or signed:
        values = _values(image, signed)
        is_clear = values == clear if isinstance(clear := image.info.get("transparency"), int) else None
        seen = values if is_clear is None else values[~is_clear]
        _check_seen(not seen.size)
        low, high = window if isinstance(window, tuple) else stated or whole_range(seen)
        if not isinstance(window, tuple) and (gamma := stated_gamma(image)) is not None:
            values = high * of_gamma(values / high, gamma)
        scaled = scale(values, (low, high))
        if is_inverted:
            scaled = 255 - scaled
        if PROFILE in image.info:
            scaled = np.array(in_srgb(Image.fromarray(scaled), image.info[PROFILE]))
        if is_clear is not None:
            scaled[is_clear] = 255
        return np.repeat(scaled[:, :, None], 3, axis=2)
    if image.mode == "RGB" and not image.info:
        return np.asarray(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _over_white(image)
    shown = _shown(image)
    return np.asarray(shown if shown.mode == "RGB" else shown.convert("RGB"))


def _shown(image: Image.Image) -> Image.Image:
    """Return a picture in sRGB, where its file has a profile or states a curve; numbers of LAB need none."""
    gamma = stated_gamma(image)
    if (PROFILE not in image.info and gamma is None) or image.mode == "LAB":
        return image
    has_alpha = image.mode[-1] in "Aa" or "transparency" in image.info
    if image.mode != "CMYK":
        grey = "L" if image.mode[0] in "1L" else "RGB"
        image = image.convert(f"{grey}A" if has_alpha else grey)
    return in_srgb(image, image.info.get(PROFILE)) if gamma is None else with_gamma(image, gamma)


def _over_white(image: Image.Image) -> Pixels:
    shown = image.convert("LA") if image.mode == "La" else image
    shown = _shown(shown).convert("RGBA")
    opacity = shown.getchannel("A").getextrema()
    _check_seen(opacity == (0, 0))
    if opacity == (255, 255):
        return np.asarray(shown.convert("RGB"))
    return np.asarray(Image.alpha_composite(Image.new("RGBA", shown.size, WHITE), shown).convert("RGB"))


def _check_seen(is_clear: bool) -> None:
    if is_clear:
        raise Unreadable("all of it is transparent, and nothing is seen; convert it to a picture without transparency")


def _numeric(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def numbers_of(path: Path, frame: int | None = None) -> npt.NDArray[Any] | None:
    """Return the numbers of a file, or of its named frame, whose range is not stated; None where it is, or it has colours.

    Raises:
        Unreadable: It cannot be read.
    """
    try:
        with path.open("rb") as file, Image.open(file) as image:
            _check_format(image)
            _choose(image, frame)
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
    kind, tile = getattr(image, "format", None), getattr(image, "tile", None)
    if kind in ("PPM", "JPEG2000") and image.mode.startswith("I"):
        # Pillow scales both from the depth that they state. Of 16 bits it keeps each, which need not be used.
        if kind == "PPM" and tile:
            is_whole = any(depth in str(tile[-1][-1]) for depth in ("65535", "16B"))
        else:
            is_whole = has_all_bits(np.asarray(image), is_shifted=kind == "JPEG2000")
        return None if is_whole else (0, 65535)
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
    return of_type(values, bits, signed=signed, is_tiff=getattr(image, "format", None) == "TIFF")
