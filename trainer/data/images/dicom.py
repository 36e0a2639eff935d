"""Images of DICOM by pydicom, in the range that their file states: rescaled, windowed, and with white where it says white.

Needs the extra `dicom`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedplcc.trainer.data.images.colours import in_srgb
from fedplcc.trainer.data.images.scaling import Pixels, Unnamed, Unreadable, Window, scale

_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
"""Colours that pydicom gives as RGB."""
_MAY_BE_EMPTY = ("RescaleSlope", "RescaleIntercept", "WindowCenter", "WindowWidth", "NumberOfFrames")
"""Elements that some machines write without a value."""
_GROUPS = ("PixelValueTransformationSequence", "FrameVOILUTSequence")
"""Functional groups of an enhanced file that say what its numbers mean, and how they are shown."""
MOST_OF_AN_ERROR = 120
"""Most characters of pydicom's own words in a reason."""


def read_dicom(path: Path, window: Window, frame: int | None) -> Pixels:
    """Return a frame of a DICOM file as RGB.

    Grey values are rescaled to the unit that the file states (modality); then `window`, in that unit, goes before the file's
    own first window or table, and that before the whole range of its stored bits.

    Args:
        window: The values that become black and white.
        frame: Number of the frame, from 1; only a file of a single frame needs none.

    Raises:
        Unreadable: pydicom is missing, the file is of several frames and none is named, or it cannot be decoded.
    """
    try:
        pydicom, pixels = import_module("pydicom"), import_module("pydicom.pixels")
    except ImportError as error:
        raise Unreadable("it is DICOM, which needs pydicom: pip install 'fedplcc[dicom]'") from error
    try:
        dataset = pydicom.dcmread(path)
        return _shown(dataset, pixels, window, frame)
    except (Unreadable, OSError, MemoryError):
        raise
    except pydicom.errors.InvalidDicomError as error:
        raise Unreadable("it has not the head of a DICOM file (128 bytes, DICM); convert it") from error
    # pydicom and its decoders raise anything on a damaged file.
    except Exception as error:
        said = " ".join(str(error).split())[:MOST_OF_AN_ERROR]
        raise Unreadable(f"it is DICOM that pydicom cannot read: {said}") from error


def _shown(dataset: Any, pixels: Any, window: Window, frame: int | None) -> Pixels:
    if not any(name in dataset for name in _PIXELS):
        raise Unreadable("it is DICOM without pixels, such as a report or a list of files")
    _take_groups(dataset, frame)
    for name in _MAY_BE_EMPTY:
        if name in dataset and dataset.get(name) in (None, ""):
            delattr(dataset, name)
    highest, stored = dataset.get("HighBit"), dataset.get("BitsStored")
    if highest is not None and stored and highest != stored - 1:
        raise Unreadable(
            f"its numbers of {stored} bits end at bit {highest + 1}, where pydicom takes others; convert it"
        )
    syntax = dataset.file_meta.TransferSyntaxUID
    if syntax.is_compressed and not pixels.get_decoder(syntax).is_available:
        raise Unreadable(
            f"its pixels are compressed as {syntax.name}, which needs a decoder of pydicom that is not installed: "
            "pip install 'pylibjpeg[all]', or convert it"
        )
    values = _frame(dataset.pixel_array, int(dataset.get("NumberOfFrames", 1) or 1), frame)
    has_colours = int(dataset.get("SamplesPerPixel", 1)) > 1
    if values.shape != (dataset.Rows, dataset.Columns, 3)[: 2 + has_colours]:
        raise Unreadable("it has pixels of several frames and states one")
    if has_colours:
        if dataset.PhotometricInterpretation not in _COLOURS:
            raise Unreadable(f"its colours are {dataset.PhotometricInterpretation}, which cannot be converted here")
        if values.dtype != np.uint8:
            raise Unreadable(f"it has colours of {values.dtype}, not of 8 bits")
        if profile := dataset.get("ICCProfile"):
            return np.asarray(in_srgb(Image.fromarray(values), profile))
        return np.ascontiguousarray(values)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        colours = pixels.apply_color_lut(values, dataset)
        if colours.dtype.itemsize > 1 and colours.max() < 256:
            raise Unreadable("its table of colours has entries of 16 bits, and uses the lower 8; convert the file")
        return scale(colours[..., :3], (0, 2 ** (8 * colours.dtype.itemsize) - 1))
    if dataset.get("PixelPresentation") == "COLOR" or "RedPaletteColorLookupTableDescriptor" in dataset:
        raise Unreadable("it has colours above its grey, which cannot be had here; convert it")
    if dataset.get("PresentationLUTShape") == "INVERSE" and dataset.PhotometricInterpretation == "MONOCHROME2":
        raise Unreadable("it says that 0 is black (MONOCHROME2), and that it is shown inverted; convert it")
    rescaled = pixels.apply_modality_lut(values, dataset)
    if isinstance(window, tuple):
        grey = scale(rescaled.astype(np.float64), window)
    else:
        _check_range(dataset, values, rescaled)
        shown = pixels.apply_voi_lut(rescaled, dataset)
        grey = scale(np.asarray(shown, np.float64), shown_range(dataset))
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        grey = 255 - grey
    return np.repeat(grey[:, :, None], 3, axis=2)


def _take_groups(dataset: Any, frame: int | None) -> None:
    """Set what an enhanced file states in its functional groups: those of the frame, else those of all frames."""
    shared, own = dataset.get("SharedFunctionalGroupsSequence"), dataset.get("PerFrameFunctionalGroupsSequence")
    if own and len(own) < (frame or 1):
        raise Unreadable(f"it describes {len(own)} frames, and not frame {frame}")
    for groups in (shared and shared[0], own and own[(frame or 1) - 1]):
        for name in _GROUPS:
            for group in (groups.get(name) if groups else None) or ():
                for element in group:
                    dataset[element.tag] = element


def _check_range(dataset: Any, values: npt.NDArray[Any], rescaled: npt.NDArray[Any]) -> None:
    """Refuse grey that no window shows: a window of no width, or numbers that use little of all bits of their type."""
    if tables := dataset.get("VOILUTSequence"):
        shades, bits = tables[0].LUTData, int(tables[0].LUTDescriptor[2])
        if bits > 8:
            top = int(np.max(np.frombuffer(shades, np.uint16) if isinstance(shades, bytes) else shades))
            if top < 2**bits // 4:
                raise Unreadable(
                    f"its table of shades states {bits} bits and ends at {top}; set data.window in numbers"
                )
        return
    if "ModalityLUTSequence" in dataset:
        return
    if "WindowWidth" in dataset and "WindowCenter" in dataset:
        width = dataset.WindowWidth
        first = float(width if isinstance(width, int | float | str) else width[0])
        if first <= 0:
            raise Unreadable(f"its window has the width {first:g}; set data.window in numbers")
        return
    if values.dtype.kind == "f":
        raise Unreadable(f"its fractions, to {rescaled.max():g}, have no window; set data.window in numbers")
    stored = int(dataset.BitsStored)
    if values.dtype.kind not in "iu" or stored <= 8 or stored != int(dataset.BitsAllocated):
        return
    kind = np.iinfo(values.dtype)
    if max(abs(int(values.max())), abs(int(values.min()))) < (kind.max + 1) / (4 if kind.min == 0 else 2):
        raise Unreadable(
            f"its numbers of {stored} bits, from {rescaled.min():g} to {rescaled.max():g}, have no window; "
            "set data.window in numbers"
        )


def check_frame(frame: int | None, num_frames: int) -> None:
    """Refuse a frame that a file has not, and several of which none is named.

    Raises:
        Unreadable: It is so.
        Unnamed: None is named.
    """
    if frame is not None and not 1 <= frame <= num_frames:
        raise Unreadable(f"it has {num_frames} frames, and ?frame={frame} is named")
    if frame is None and num_frames > 1:
        raise Unnamed(f"it has {num_frames} frames; name one: folder:PATH?frame=1")


def _frame(pixels: npt.NDArray[Any], num_frames: int, frame: int | None) -> npt.NDArray[Any]:
    check_frame(frame, num_frames)
    chosen: npt.NDArray[Any] = pixels if num_frames == 1 else pixels[(frame or 1) - 1]
    return chosen


def shown_range(dataset: Any) -> tuple[float, float]:
    """Return the range of the values that pydicom's windowing gives: that of a table's entries, or of the stored bits."""
    tables = dataset.get("VOILUTSequence")
    if tables:
        return 0.0, float(2 ** int(tables[0].LUTDescriptor[2]) - 1)
    modality = dataset.get("ModalityLUTSequence")
    if modality:
        return 0.0, float(2 ** int(modality[0].LUTDescriptor[2]) - 1)
    bits = int(dataset.BitsStored)
    low, high = (0, 2**bits - 1) if dataset.PixelRepresentation == 0 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
    if slope is None or intercept is None:
        return float(low), float(high)
    ends = low * float(slope) + float(intercept), high * float(slope) + float(intercept)
    return min(ends), max(ends)
