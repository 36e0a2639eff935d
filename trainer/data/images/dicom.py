"""Images of DICOM by pydicom, in the range that their file states: rescaled, windowed, and with white where it says white.

Needs the extra `dicom`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.trainer.data.images.scaling import Pixels, Unreadable, Window, scale


def read_dicom(path: Path, window: Window, frame: int | None) -> Pixels:
    """Return a frame of a DICOM file as RGB.

    Grey values are rescaled to the unit that the file states (modality); then `window`, in that unit, goes before the file's
    own first window or table, and that before the whole range of its stored bits.

    Args:
        path: The file.
        window: The values that become black and white.
        frame: Number of the frame, from 1; only a file of a single frame needs none.

    Raises:
        Unreadable: pydicom is missing, the file is of several frames and none is named, or it cannot be decoded.
    """
    try:
        pydicom, pixels = import_module("pydicom"), import_module("pydicom.pixels")
    except ImportError as error:
        raise Unreadable("it is DICOM, which needs pydicom: pip install 'fedplcc[dicom]'") from error
    dataset = pydicom.dcmread(path)
    values = _frame(dataset.pixel_array, int(dataset.get("NumberOfFrames", 1) or 1), frame)
    if int(dataset.get("SamplesPerPixel", 1)) > 1:
        if values.dtype != np.uint8:
            raise Unreadable(f"it has colours of {values.dtype}, not of 8 bits")
        return np.ascontiguousarray(values)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        colours = pixels.apply_color_lut(values, dataset)
        return scale(colours[..., :3], (0, 2 ** (8 * colours.dtype.itemsize) - 1))
    rescaled = pixels.apply_modality_lut(values, dataset)
    if isinstance(window, tuple):
        grey = scale(rescaled.astype(np.float64), window)
    else:
        shown = pixels.apply_voi_lut(rescaled, dataset)
        grey = scale(np.asarray(shown, np.float64), shown_range(dataset))
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        grey = 255 - grey
    return np.repeat(grey[:, :, None], 3, axis=2)


def _frame(pixels: npt.NDArray[Any], num_frames: int, frame: int | None) -> npt.NDArray[Any]:
    if frame is not None and not 1 <= frame <= num_frames:
        raise Unreadable(f"it has {num_frames} frames, and ?frame={frame} is named")
    if num_frames == 1:
        return pixels
    if frame is None:
        raise Unreadable(f"it has {num_frames} frames; name one: folder:PATH?frame=1")
    chosen: npt.NDArray[Any] = pixels[frame - 1]
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
