"""DICOM equals pydicom's own values with its windowing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.trainer.data.images.pixels import read_pixels, why_unreadable
from fedplcc.trainer.data.images.scaling import Unreadable
from tests.unit.trainer.data.test_pixels import grey_of


@pytest.fixture
def pydicom() -> Any:
    return pytest.importorskip(
        "pydicom", minversion="3.0", reason="pydicom is not installed: pip install 'fedplcc[dicom]'"
    )


def write(pydicom: Any, path: Path, values: np.ndarray[Any, Any], **elements: Any) -> Any:
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    dataset.Rows, dataset.Columns = values.shape[-2:]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 12, 11
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    if values.ndim == 3:
        dataset.NumberOfFrames = len(values)
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.PixelData = values.tobytes()
    dataset.save_as(path, enforce_file_format=True)
    return pydicom.dcmread(path)


@pytest.mark.parametrize("window", [{}, {"WindowCenter": 40, "WindowWidth": 400}])
@pytest.mark.parametrize("rescale", [{}, {"RescaleSlope": 1, "RescaleIntercept": -1024}])
@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
def test_grey(pydicom: Any, tmp_path: Path, window: Any, rescale: Any, photometric: str) -> None:
    from fedplcc.trainer.data.images.dicom import shown_range

    values = np.arange(0, 4096, 64, dtype=np.uint16).reshape(8, 8)
    kept = write(pydicom, tmp_path / "a", values, PhotometricInterpretation=photometric, **window, **rescale)
    shown = pydicom.pixels.apply_voi_lut(pydicom.pixels.apply_modality_lut(kept.pixel_array, kept), kept)
    low, high = shown_range(kept)
    expected = np.rint(255 * (shown.astype(float) - low) / (high - low))
    assert np.array_equal(grey_of(tmp_path / "a"), 255 - expected if photometric == "MONOCHROME1" else expected)


def test_of_several_frames_the_named_one(pydicom: Any, tmp_path: Path) -> None:
    values = np.stack([np.full((8, 8), shade, np.uint16) for shade in (0, 4095)])
    write(pydicom, tmp_path / "a.dcm", values)
    with pytest.raises(Unreadable, match="it has 2 frames; name one"):
        read_pixels(tmp_path / "a.dcm")
    assert read_pixels(tmp_path / "a.dcm", frame=2).min() == 255


@pytest.mark.parametrize("name", ["1.2.840.113619.2.5", "IM0001", "x.DCM", "x.jpg", "x.dcm.bak"])
def test_under_any_name(pydicom: Any, name: str, tmp_path: Path) -> None:
    write(pydicom, tmp_path / name, np.full((8, 8), 4095, np.uint16))
    assert read_pixels(tmp_path / name).min() == 255


@pytest.mark.parametrize(
    ("elements", "reason"),
    [
        ({"BitsStored": 16, "HighBit": 15}, "its numbers of 16 bits, from 0 to 4032, have no window"),
        ({"WindowCenter": 40, "WindowWidth": 0}, "its window has the width 0"),
        ({"BitsStored": 16, "HighBit": 15, "WindowWidth": 400}, "have no window"),
        ({"HighBit": 15}, "its numbers of 12 bits end at bit 16"),
        ({"Rows": 4}, "it has pixels of several frames and states one"),
        (
            {"SamplesPerPixel": 3, "PhotometricInterpretation": "HSV", "PlanarConfiguration": 0, "Rows": 2},
            "its colours are HSV",
        ),
        ({"SamplesPerPixel": 7}, "it is DICOM that pydicom cannot read: "),
        ({"PresentationLUTShape": "INVERSE"}, "and that it is shown inverted"),
        ({"PixelPresentation": "COLOR"}, "it has colours above its grey"),
    ],
)
def test_what_shows_nothing_has_a_reason(pydicom: Any, elements: dict[str, Any], reason: str, tmp_path: Path) -> None:
    values = np.arange(0, 4096, 64, dtype=np.uint16).reshape(8, 8)
    write(pydicom, tmp_path / "a.dcm", values, **elements)
    warnings.simplefilter("ignore")  # pydicom's
    assert reason in why_unreadable(tmp_path / "a.dcm")


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.70", "1.2.840.10008.1.2.4.80"])
def test_compression_without_a_decoder_and_a_file_without_its_head_are_one_sentence(
    pydicom: Any, syntax: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What most scanners compress by, JPEG Lossless, is none that pydicom decodes by itself."""
    monkeypatch.setattr(pydicom.pixels.decoders.base.Decoder, "is_available", False)
    kept = write(pydicom, tmp_path / "a.dcm", np.zeros((8, 8), np.uint16))
    kept.file_meta.TransferSyntaxUID = syntax
    kept.PixelData = pydicom.encaps.encapsulate([b"\xff\xd8\xff\xc3" + bytes(60)])
    kept["PixelData"].is_undefined_length = True
    kept.save_as(tmp_path / "a.dcm")
    why = why_unreadable(tmp_path / "a.dcm")
    assert why.startswith("its pixels are compressed as JPEG")
    assert why.endswith("a decoder of pydicom that is not installed: pip install 'pylibjpeg[all]', or convert it")
    (tmp_path / "b.dcm").write_bytes((tmp_path / "a.dcm").read_bytes()[200:])
    assert why_unreadable(tmp_path / "b.dcm").startswith("it has not the head of a DICOM file")


@pytest.mark.parametrize("name", ["RescaleSlope", "WindowWidth", "NumberOfFrames"])
def test_elements_without_a_value_are_as_none(pydicom: Any, name: str, tmp_path: Path) -> None:
    values = np.arange(0, 4096, 64, dtype=np.uint16).reshape(8, 8)
    others = {"RescaleSlope": "RescaleIntercept", "WindowWidth": "WindowCenter"}
    write(pydicom, tmp_path / "a.dcm", values, **dict.fromkeys((name, others.get(name, name)), ""))
    write(pydicom, tmp_path / "b.dcm", values)
    assert np.array_equal(read_pixels(tmp_path / "a.dcm"), read_pixels(tmp_path / "b.dcm"))


@pytest.mark.parametrize("of_frame", [False, True])
@pytest.mark.parametrize("window", [None, (-160, 240)])
def test_functional_groups_say_what_the_numbers_of_a_frame_mean(
    pydicom: Any, of_frame: bool, window: Any, tmp_path: Path
) -> None:
    """Enhanced CT and MR state rescale and window there alone; a frame's own groups go before those of all frames."""

    def groups(slope: int, centre: int, width: int) -> Any:
        found, meaning, shown = (pydicom.Dataset() for _ in range(3))
        meaning.RescaleSlope, meaning.RescaleIntercept = slope, -1024
        shown.WindowCenter, shown.WindowWidth = centre, width
        found.PixelValueTransformationSequence, found.FrameVOILUTSequence = [meaning], [shown]
        return found

    own = [pydicom.Dataset(), groups(2, 40, 400) if of_frame else pydicom.Dataset()]
    values = np.stack([np.arange(0, 4096, 64, dtype=np.uint16).reshape(8, 8)] * 2)
    all_frames = {"SharedFunctionalGroupsSequence": [groups(1, 0, 2000)], "PerFrameFunctionalGroupsSequence": own}
    write(pydicom, tmp_path / "enhanced.dcm", values, **all_frames)
    plain = {"RescaleSlope": 1 + of_frame, "RescaleIntercept": -1024}
    plain |= {"WindowCenter": 40, "WindowWidth": 400} if of_frame else {"WindowCenter": 0, "WindowWidth": 2000}
    write(pydicom, tmp_path / "plain.dcm", values, **plain)
    found, expected = (read_pixels(tmp_path / name, window, 2) for name in ("enhanced.dcm", "plain.dcm"))
    assert np.array_equal(found, expected)
    del own[1]
    write(pydicom, tmp_path / "short.dcm", values, **all_frames)
    assert "describes 1 frames" in why_unreadable(tmp_path / "short.dcm", window, 2)


def test_a_table_of_colours_that_uses_the_lower_8_of_16_bits_is_refused(pydicom: Any, tmp_path: Path) -> None:
    for top, reason in ((255, "uses the lower 8"), (65535, "")):
        table: dict[str, Any] = {"PhotometricInterpretation": "PALETTE COLOR"}
        for colour in ("Red", "Green", "Blue"):
            table[f"{colour}PaletteColorLookupTableDescriptor"] = [2, 0, 16]
            table[f"{colour}PaletteColorLookupTableData"] = np.array([0, top], np.uint16).tobytes()
        write(pydicom, tmp_path / "a.dcm", np.array([[0, 1]], np.uint16), **table)
        assert reason in why_unreadable(tmp_path / "a.dcm")
    assert grey_of(tmp_path / "a.dcm").tolist() == [[0, 255]]


def test_a_table_of_shades_that_uses_the_lower_12_of_16_bits_is_refused(pydicom: Any, tmp_path: Path) -> None:
    for top, reason in ((4095, "ends at 4095"), (65535, "")):
        shades = pydicom.Dataset()
        shades.LUTDescriptor = [4096, 0, 16]
        shades.add_new("LUTData", "OW", np.linspace(0, top, 4096).astype(np.uint16).tobytes())
        write(pydicom, tmp_path / "a.dcm", np.array([[0, 4095]], np.uint16), VOILUTSequence=[shades])
        assert reason in why_unreadable(tmp_path / "a.dcm")


def test_a_report_has_no_pixels(pydicom: Any, tmp_path: Path) -> None:
    kept = write(pydicom, tmp_path / "a.dcm", np.zeros((8, 8), np.uint16))
    del kept.PixelData
    kept.save_as(tmp_path / "b.dcm")
    assert "it is DICOM without pixels" in why_unreadable(tmp_path / "b.dcm")


def test_without_pydicom_the_reason_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    (tmp_path / "a.dcm").write_bytes(bytes(128) + b"DICM")
    assert "needs pydicom: pip install 'fedplcc[dicom]'" in why_unreadable(tmp_path / "a.dcm")
