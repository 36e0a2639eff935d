"""Colours of pictures with an ICC profile, beside the published matrices, and profiles that cannot be used."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import ExifTags, Image, ImageCms, PngImagePlugin

from fedplcc.trainer.data.images.colours import MAX_PROFILE_BYTES, in_srgb, remarks_on_pictures
from fedplcc.trainer.data.images.pixels import read_pixels, why_unreadable
from fedplcc.trainer.data.record import digest_of
from fedplcc.trainer.data.survey import survey
from tests.support.icc_profiles import ADOBE, DISPLAY_P3, GREY_18, P3, PRESS, SRGB_CURVE, profile

STEPS = np.arange(0, 256, 15, dtype=np.uint8)
COLOURS = np.stack(np.meshgrid(STEPS, STEPS, STEPS), axis=-1).reshape(18, -1, 3)
GREY = np.arange(256, dtype=np.uint8).reshape(16, 16)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
# Published matrices of linear light to XYZ under D65: SMPTE EG 432-1 (P3-D65), Adobe RGB (1998) 4.3.5.3, IEC 61966-2-1.
P3_TO_XYZ = [[0.48657, 0.26567, 0.19822], [0.22897, 0.69174, 0.07929], [0.00000, 0.04511, 1.04394]]
ADOBE_TO_XYZ = [[0.57667, 0.18556, 0.18823], [0.29734, 0.62736, 0.07529], [0.02703, 0.07069, 0.99134]]
XYZ_TO_SRGB = [[3.24097, -1.53738, -0.49861], [-0.96924, 1.87597, 0.04156], [0.05563, -0.20398, 1.05697]]


def light(shown: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.where(shown <= 0.04045, shown / 12.92, ((shown + 0.055) / 1.055) ** 2.4)
    return found


def levels(linear: npt.NDArray[Any]) -> npt.NDArray[Any]:
    clipped = np.clip(linear, 0, 1)
    shown: npt.NDArray[Any] = np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055)
    found: npt.NDArray[Any] = np.rint(255 * shown)
    return found


def by_matrices(pixels: npt.NDArray[Any], curve: Any, to_xyz: Any) -> npt.NDArray[Any]:
    linear: npt.NDArray[Any] = curve(pixels / 255) @ np.array(to_xyz).T @ np.array(XYZ_TO_SRGB).T
    return levels(linear)


def saved(path: Path, pixels: npt.NDArray[Any], icc: bytes | None, mode: str | None = None) -> Path:
    image = Image.fromarray(pixels)
    options: dict[str, Any] = {"lossless": True} if path.suffix == ".webp" else {}
    (image.convert(mode) if mode else image).save(path, icc_profile=icc, **options)
    return path


def differs(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> int:
    return int(np.abs(found.astype(np.int16) - expected).max())


@pytest.mark.parametrize("kind", ["png", "tif", "webp"])
@pytest.mark.parametrize(
    ("icc", "curve", "to_xyz"), [(P3, light, P3_TO_XYZ), (ADOBE, lambda shown: shown ** (563 / 256), ADOBE_TO_XYZ)]
)
def test_colours_of_a_profile_are_as_the_published_matrices_have_them(
    icc: bytes, curve: Any, to_xyz: Any, kind: str, tmp_path: Path
) -> None:
    expected = by_matrices(COLOURS, curve, to_xyz)
    assert differs(COLOURS, expected) > 40
    found = read_pixels(saved(tmp_path / f"a.{kind}", COLOURS, icc))
    # Out of gamut a channel is cut off at 0 or 255, where the curve is steepest.
    assert differs(found, expected) <= 2


def test_grey_of_a_curve_is_as_the_curve_says(tmp_path: Path) -> None:
    expected = levels((GREY / 255) ** 1.8)
    for mode in ("L", "LA"):
        found = read_pixels(saved(tmp_path / f"{mode}.png", GREY, GREY_18, mode))
        assert (found == found[:, :, :1]).all()
        assert differs(found[:, :, 0], expected) <= 2
    deep = Image.fromarray((GREY.astype(np.uint16) << 8) + GREY)
    deep.save(tmp_path / "deep.png", icc_profile=GREY_18)
    assert differs(read_pixels(tmp_path / "deep.png")[:, :, 0], expected) <= 2


def test_a_jpeg_is_converted_as_the_same_pixels_are(tmp_path: Path) -> None:
    smooth = Image.fromarray(COLOURS).resize((64, 64))
    smooth.save(tmp_path / "plain.jpg", quality=95)
    smooth.save(tmp_path / "p3.jpg", quality=95, icc_profile=P3)
    plain = read_pixels(tmp_path / "plain.jpg")
    assert differs(read_pixels(tmp_path / "p3.jpg"), by_matrices(plain, light, P3_TO_XYZ)) <= 2


def test_what_is_transparent_is_converted_before_it_shows_white(tmp_path: Path) -> None:
    pixels = np.full((2, 2, 4), (200, 30, 60, 128), np.uint8)
    pixels[0, 0, 3] = 0
    half = by_matrices(pixels[1, 1, :3], light, P3_TO_XYZ)
    found = read_pixels(saved(tmp_path / "a.png", pixels, P3))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert differs(found[1, 1], (half * 128 + 255 * 127) / 255) <= 2


def test_a_palette_and_a_turned_picture_keep_their_profile(tmp_path: Path) -> None:
    flat = np.full((4, 8, 3), (200, 30, 60), np.uint8)
    expected = by_matrices(flat[0, 0], light, P3_TO_XYZ)
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray(flat).save(tmp_path / "turned.png", icc_profile=P3, exif=exif)
    Image.fromarray(flat).quantize(4).save(tmp_path / "palette.png", icc_profile=P3)
    for name, shape in (("turned.png", (8, 4, 3)), ("palette.png", (4, 8, 3))):
        found = read_pixels(tmp_path / name)
        assert found.shape == shape
        assert differs(found[0, 0], expected) <= 2


def test_pixels_of_srgb_and_of_files_without_a_profile_are_as_they_were(tmp_path: Path) -> None:
    own_curve = profile(
        "RGB", SRGB_CURVE, ((0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.7141))
    )
    for name, icc in (("none", None), ("pillow", SRGB), ("by hand", own_curve)):
        found = read_pixels(saved(tmp_path / f"{name}.png", COLOURS, icc))
        assert digest_of(found) == digest_of(COLOURS), name
    assert digest_of(read_pixels(saved(tmp_path / "grey.png", GREY, SRGB))[:, :, :1]) == digest_of(GREY[:, :, None])


@pytest.mark.parametrize("kind", ["tif", "jpg"])
def test_inks_show_what_their_profile_says(kind: str, tmp_path: Path) -> None:
    """JPEG of inks are stored the other way round, as Adobe does; mid grey is 119 of 255, L* = 50."""
    for inks, grey in (((0, 0, 0, 0), 255), ((255, 0, 0, 0), 119), ((0, 255, 255, 0), 255), ((0, 0, 0, 255), 0)):
        image = Image.new("CMYK", (8, 8), inks)
        image.save(tmp_path / f"a.{kind}", icc_profile=PRESS)
        assert differs(read_pixels(tmp_path / f"a.{kind}"), np.full((8, 8, 3), grey)) <= 2
        with remarks_on_pictures() as said:
            assert in_srgb(image, P3) is image
        assert said[0].startswith("its colour profile is of RGB colours (mntr), and its pixels are CMYK")


def cut(icc: bytes) -> bytes:
    return icc[: len(icc) // 2]


@pytest.mark.parametrize(
    ("icc", "why"),
    [
        (b"no profile", "is damaged"),
        (cut(P3), "is damaged"),
        (P3[:128] + bytes(len(P3) - 128), "is damaged"),
        (GREY_18, "is of GRAY colours (mntr), and its pixels are RGB"),
        (profile("RGB", 1.8, DISPLAY_P3, b"link"), "is of RGB colours (link), and its pixels are RGB"),
        (P3 + bytes(MAX_PROFILE_BYTES), "has more than 4,194,304 bytes"),
    ],
)
def test_a_profile_that_cannot_be_used_is_said_and_taken_as_srgb(icc: bytes, why: str, tmp_path: Path) -> None:
    for role in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / role / name).mkdir(parents=True)
            saved(tmp_path / role / name / "a.tif", COLOURS, icc)
    assert np.array_equal(read_pixels(tmp_path / "train" / "cat" / "a.tif"), COLOURS)
    found = survey(f"folder:{tmp_path}", read_all=True)
    assert found.unreadable == ()
    assert f"4 images: its colour profile {why}: its colours are taken as sRGB" in found.remarks


def test_a_png_with_a_profile_that_pillow_does_not_unpack_says_so(tmp_path: Path) -> None:
    saved(tmp_path / "a.png", COLOURS, P3 + bytes(2 << 20))
    assert why_unreadable(tmp_path / "a.png") == "its colour profile, or a text in it, has more than 1,048,576 bytes"


def png_of_gamma(path: Path, values: npt.NDArray[Any], gamma: float, **chunks: bytes) -> Path:
    info = PngImagePlugin.PngInfo()
    info.add(b"gAMA", struct.pack(">I", round(100000 * gamma)))
    for name, content in chunks.items():
        info.add(name.encode(), content)
    Image.fromarray(values).save(path, pnginfo=info)
    return path


def test_numbers_of_a_png_that_states_a_curve_are_shown_by_it(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    for values, top in ((GREY, 255), (COLOURS, 255), (deep, 65535)):
        expected = levels(values / top)
        found = read_pixels(png_of_gamma(tmp_path / "a.png", values, 1.0))
        assert differs(found if values.ndim == 3 else found[:, :, 0], expected) <= 1
    as_stored = read_pixels(saved(tmp_path / "plain.png", deep, None))
    for gamma, chunks in ((1 / 2.2, {}), (1.0, {"sRGB": b"\0"})):
        assert np.array_equal(read_pixels(png_of_gamma(tmp_path / "b.png", deep, gamma, **chunks)), as_stored)
    assert np.array_equal(read_pixels(tmp_path / "a.png", (0, 65535)), as_stored)  # a window is in the file's numbers
    clear = np.full((2, 2, 4), (100, 100, 100, 255), np.uint8)
    clear[0, 0, 3] = 0
    found = read_pixels(png_of_gamma(tmp_path / "c.png", clear, 1.0))
    assert found[0, 0].tolist() == [255, 255, 255]
    assert differs(found[1, 1], levels(np.full(3, 100 / 255))) <= 1


@pytest.mark.parametrize("gamma", [0.0, 21.0])
def test_a_gamma_beyond_reason_is_said(gamma: float, tmp_path: Path) -> None:
    with remarks_on_pictures() as said:
        assert np.array_equal(read_pixels(png_of_gamma(tmp_path / "a.png", COLOURS, gamma)), COLOURS)
    assert said == [f"its file states the gamma {gamma:g}: its numbers are taken as sRGB"]


def test_colours_that_are_stated_without_a_profile_are_said(tmp_path: Path) -> None:
    p3 = (31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000)
    png_of_gamma(tmp_path / "a.png", COLOURS, 1 / 2.2, cHRM=struct.pack(">8I", *p3))
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ColorSpace] = 65535
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.IFD.Interop] = {ExifTags.Interop.InteropIndex: "R03"}
    Image.fromarray(COLOURS).save(tmp_path / "b.jpg", exif=exif)
    with remarks_on_pictures() as said:
        read_pixels(tmp_path / "a.png")
        read_pixels(tmp_path / "b.jpg")
    assert said == [
        "its file states primaries of colours without a profile: they are taken as sRGB's",
        "its EXIF states Adobe RGB without a profile: its colours are taken as sRGB",
    ]


def test_colours_of_a_video_in_a_png_are_said(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "x.png")
    content = (tmp_path / "x.png").read_bytes()
    for transfer, count in ((13, 0), (16, 1)):
        chunk = b"cICP" + bytes((1, transfer, 0, 1))
        more = struct.pack(">I", 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        (tmp_path / "y.png").write_bytes(content[:33] + more + content[33:])
        with remarks_on_pictures() as said:
            read_pixels(tmp_path / "y.png")
        assert len(said) == count


def test_a_profile_in_pieces_of_which_one_is_missing_is_said(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(COLOURS).save(content, "JPEG", icc_profile=P3 + bytes(70000))
    data = content.getvalue()
    at = data.index(b"ICC_PROFILE\0\2\2") - 4
    (length,) = struct.unpack(">H", data[at + 2 : at + 4])
    (tmp_path / "a.jpg").write_bytes(data[:at] + data[at + 2 + length :])
    with remarks_on_pictures() as said:
        read_pixels(tmp_path / "a.jpg")
    assert said == ["its colour profile is damaged: its colours are taken as sRGB"]
