"""Pixels mean what the file says: each mode, depth and statement of a file, and the table of them in docs/data.md."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps, features

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import first_look, load_dataset
from fedplcc.trainer.data.images.colours import remarks_on_pictures
from fedplcc.trainer.data.images.pixels import numbers_of, picture, read_pixels, why_unreadable
from fedplcc.trainer.data.images.scaling import Unreadable, Unstated, auto_window, scale
from fedplcc.trainer.data.sets.folder import read_image
from fedplcc.trainer.data.survey import range_said, smallest_of, survey
from tests.support import present

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 8, 3), np.uint8)
GREY = RNG.integers(0, 256, (6, 8), np.uint8)


def tiff(path: Path, values: np.ndarray[Any, Any], **tags: int) -> None:
    """Write numbers as TIFF by hand: Pillow writes no signed, unsigned 32-bit or inverted ones."""
    kinds = {"u": 1, "i": 2, "f": 3}
    bits = tags.pop("bits", values.dtype.itemsize * 8)
    data = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"))).tobytes()
    entries = {
        256: values.shape[1],
        257: values.shape[0],
        258: bits,
        259: 1,
        262: tags.pop("photometric", 1),
        273: 8,
        277: 1,
        278: values.shape[0],
        279: len(data),
        339: kinds[values.dtype.kind],
        **{int(name.removeprefix("tag")): value for name, value in tags.items()},
    }
    content = b"II*\0" + (8 + len(data)).to_bytes(4, "little") + data + len(entries).to_bytes(2, "little")
    for tag, value in sorted(entries.items()):
        content += tag.to_bytes(2, "little") + (4).to_bytes(2, "little") + (1).to_bytes(4, "little")
        content += value.to_bytes(4, "little")
    path.write_bytes(content + bytes(4))


def grey_of(path: Path, window: Any = None) -> np.ndarray[Any, Any]:
    pixels = read_pixels(path, window)
    assert pixels.dtype == np.uint8
    assert (pixels == pixels[:, :, :1]).all()
    return pixels[:, :, 0]


@pytest.mark.parametrize("mode", ["L", "RGB", "P", "1", "CMYK", "YCbCr", "LAB"])
@pytest.mark.parametrize("kind", ["png", "tif", "jpg", "gif", "bmp", "webp"])
def test_colours_of_8_bits_are_as_pillow_converts_them(mode: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"image.{kind}"
    image = Image.fromarray(COLOURS)
    image = Image.frombytes("LAB", (8, 6), COLOURS.tobytes()) if mode == "LAB" else image.convert(mode)
    try:
        image.save(path)
    except (OSError, ValueError, KeyError):
        pytest.skip(f"{kind} has no {mode}")
    with Image.open(path) as again:
        assert np.array_equal(read_pixels(path), np.asarray(again.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["jpg", "png", "webp"])
def test_a_cameras_orientation_is_followed(orientation: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"photo.{kind}"
    exif = Image.Exif()
    exif[274] = orientation
    lossless: dict[str, Any] = {"lossless": True} if kind == "webp" else {}
    Image.fromarray(np.repeat(np.repeat(COLOURS, 4, 0), 4, 1)).save(path, exif=exif, **lossless)
    with Image.open(path) as image:
        shown = ImageOps.exif_transpose(image).convert("RGB")
    pixels = read_pixels(path)
    assert pixels.shape[:2] == ((24, 32) if orientation < 5 else (32, 24))
    assert np.array_equal(pixels, np.asarray(shown))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("values", [COLOURS, GREY, GREY.astype(np.uint16) * 257], ids=["RGB", "L", "I;16"])
def test_a_tiff_is_turned_by_its_own_tag(orientation: int, values: np.ndarray[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "photo.tif"
    Image.fromarray(values).save(path, tiffinfo={274: orientation}, compression="tiff_lzw")
    ways = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM}
    ways |= {5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE}
    ways |= {8: Image.Transpose.ROTATE_90}
    shown = Image.fromarray((values >> 8).astype(np.uint8) if values.dtype == np.uint16 else values).convert("RGB")
    shown = shown.transpose(ways[orientation]) if orientation in ways else shown
    assert np.array_equal(read_pixels(path, None if values.dtype == np.uint8 else (0, 65535)), np.asarray(shown))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_shows_white(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    if mode == "P":
        image = Image.fromarray(np.arange(8, dtype=np.uint8).reshape(2, 4), "P")
        image.putpalette([9, 99, 199] * 256)
        image.save(path, transparency=bytes([0, 128, 255, 255, 255, 255, 255, 255]))
        alpha = np.array([[0, 128, 255, 255], [255] * 4])
        colour = np.array([9, 99, 199])
    else:
        alpha = np.array([[0, 64, 128, 255]])
        colour = np.array([9, 99, 199] if mode == "RGBA" else [50, 50, 50])
        bands = [colour[0], alpha] if mode == "LA" else [*colour, alpha]
        Image.merge(
            mode, [Image.fromarray(np.broadcast_to(band, alpha.shape).astype(np.uint8)) for band in bands]
        ).save(path)
    expected = (colour * alpha[..., None] + 255 * (255 - alpha[..., None])) / 255
    assert np.abs(read_pixels(path) - expected).max() <= 1


@given(bits=st.sampled_from([8, 10, 12, 14, 16, 32]), data=st.data())
def test_auto_is_the_smallest_usual_depth_that_holds_all(bits: int, data: st.DataObject) -> None:
    highest = data.draw(st.integers(2 ** {8: 0, 10: 8, 12: 10, 14: 12, 16: 14, 32: 16}[bits], 2**bits - 1))
    assert auto_window(0.0, float(highest), True) == (0.0, float(2**bits - 1))


@given(
    kind=st.sampled_from(["u2", "u4", "i2", "i4", "f4"]),
    low=st.integers(-30000, 30000),
    width=st.integers(1, 60000),
    data=st.data(),
)
def test_a_window_maps_its_ends_to_black_and_white_and_is_monotonic(
    kind: str, low: int, width: int, data: st.DataObject
) -> None:
    span = (0, 60000) if kind[0] == "u" else (-30000, 30000)
    values = np.array(sorted(data.draw(st.lists(st.integers(*span), min_size=1, max_size=20))), kind)
    high = low + width
    pixels = scale(values, (low, high)).astype(int)
    exact = np.clip(255 * (values.astype(float) - low) / width, 0, 255)
    assert np.abs(pixels - exact).max() <= 1
    assert (np.diff(pixels) >= 0).all()
    assert scale(np.array([low, high], "f8"), (low, high)).tolist() == [0, 255]


@pytest.mark.parametrize("bits", [10, 12, 14])
@pytest.mark.parametrize("kind", ["png", "tif", "pgm", "jp2"])
def test_fewer_bits_in_16_are_refused_without_a_window_and_right_with_one(bits: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"scan.{kind}"
    values = np.linspace(0, 2**bits - 1, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(values).save(path)
    with pytest.raises(Unstated, match=r"16 bits state no range, and the largest is \d+; set data.window"):
        read_pixels(path)
    expected = values >> (bits - 8)
    assert np.array_equal(grey_of(path, (0, 2**bits - 1)), expected)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        shown = read_image(path)
    assert shown is not None
    assert np.array_equal(shown[:, :, 0], expected)
    assert "bits" in str(said[0].message)


def test_the_range_that_a_pgm_states_is_known_when_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "dark.pgm").write_bytes(b"P5 2 2 4095\n" + np.array([0, 16, 32, 64], ">u2").tobytes())
    with Image.open(tmp_path / "dark.pgm") as image:
        assert picture(image)[..., 0].tolist() == picture(image)[..., 0].tolist() == [[0, 1], [2, 4]]


def test_white_is_zero_where_the_file_says_so(tmp_path: Path) -> None:
    for values in (GREY, np.linspace(0, 65535, 48).astype(np.uint16).reshape(6, 8)):
        for photometric in (0, 1):
            tiff(tmp_path / f"{photometric}.tif", values, photometric=photometric)
        assert np.array_equal(grey_of(tmp_path / "0.tif"), 255 - grey_of(tmp_path / "1.tif"))


@pytest.mark.parametrize("kind", ["i1", "u2", "i2", "u4", "i4"])
def test_a_type_that_is_used_whole_is_its_range(kind: str, tmp_path: Path) -> None:
    limits = np.iinfo(kind)
    values = np.linspace(limits.min, limits.max, 64).astype(kind).reshape(8, 8)
    tiff(tmp_path / "a.tif", values)
    assert np.abs(grey_of(tmp_path / "a.tif").reshape(-1) - np.linspace(0, 255, 64)).max() <= 1.01


@pytest.mark.parametrize(("kind", "low", "high"), [("i2", -1024, 3071), ("i4", -5, 900), ("u4", 0, 4095), ("f4", 0, 1)])
def test_numbers_of_a_part_of_their_type_need_a_range_from_the_file_or_the_run(
    kind: str, low: int, high: int, tmp_path: Path
) -> None:
    values = np.linspace(low, high, 64).astype(kind).reshape(8, 8)
    exact = np.linspace(0, 255, 64)
    tiff(tmp_path / "plain.tif", values)
    with pytest.raises(Unstated):
        read_pixels(tmp_path / "plain.tif")
    assert np.abs(grey_of(tmp_path / "plain.tif", (low, high)).reshape(-1) - exact).max() <= 2
    found = present(numbers_of(tmp_path / "plain.tif"))
    assert (found.min(), found.max()) == (low, high)
    if low >= 0:
        tiff(tmp_path / "tagged.tif", values, tag280=low, tag281=high)
        assert np.abs(grey_of(tmp_path / "tagged.tif").reshape(-1) - exact).max() <= 2


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_transparent_number_of_few_bits_shows_white_and_no_other(bits: int, tmp_path: Path) -> None:
    values = np.arange(2**bits, dtype=np.uint8).reshape(1, -1, 1).repeat(8 // bits, axis=1)
    for clear in range(2**bits):
        deep_png(tmp_path / "x.png", values, (clear,), bits)
        shown = np.where(values == clear, 255, values * (255 // (2**bits - 1)))
        assert np.array_equal(grey_of(tmp_path / "x.png"), shown[:, :, 0])


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    for value in (np.nan, np.inf):
        tiff(tmp_path / "a.tif", np.array([[0, value]], np.float32))
        with pytest.raises(Unreadable, match="infinite or none"):
            read_pixels(tmp_path / "a.tif", (0, 1))


def deep_png(path: Path, values: np.ndarray[Any, Any], clear: tuple[int, ...] = (), bits: int = 16) -> None:
    """Write a PNG of 16 bits a channel, or of grey of few, by hand: Pillow writes neither with all that they may have."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    deep = (
        values.astype(">u2") if bits == 16 else np.packbits(np.unpackbits(values.astype(np.uint8), axis=2)[..., -bits:])
    )
    rows = b"".join(b"\0" + row.tobytes() for row in deep.reshape(len(values), -1))
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[values.shape[2]]
    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, kind, 0, 0, 0)
    key = chunk(b"tRNS", struct.pack(f">{len(clear)}H", *clear)) if clear else b""
    data = chunk(b"IDAT", zlib.compress(rows))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + key + data + chunk(b"IEND", b""))


@pytest.mark.parametrize(("num_channels", "has_clear_part"), [(2, False), (2, True), (3, False), (4, False), (4, True)])
def test_deep_colours_that_would_come_out_black_are_refused(
    num_channels: int, has_clear_part: bool, tmp_path: Path
) -> None:
    """Pillow reads the upper 8 bits; what is transparent, and shows white, hides no dark picture."""
    for top, is_read in ((65535, True), (4095, False)):
        values = np.linspace(0, top, 16 * num_channels).astype(np.uint16).reshape(4, 4, num_channels)
        if num_channels != 3:
            values[:, :, -1] = 65535
            values[0, 0] = (*[65535] * (num_channels - 1), 0) if has_clear_part else values[0, 0]
        deep_png(tmp_path / "x.png", values)
        if is_read:
            shown = np.broadcast_to(values[1:, :, : 3 if num_channels > 2 else 1] >> 8, (3, 4, 3))
            assert np.array_equal(read_pixels(tmp_path / "x.png")[1:], shown)
        else:
            assert "colours of 16 bits state no range" in why_unreadable(tmp_path / "x.png")
        (tmp_path / "x.ppm").write_bytes(b"P6 4 3 65535\n" + values[1:, :, [0] * 3].astype(">u2").tobytes())
        assert ("colours of 16 bits state no range" in why_unreadable(tmp_path / "x.ppm")) is not is_read


@pytest.mark.parametrize(("top", "is_read"), [(65535, True), (4095, False)])
def test_the_transparent_number_of_deep_grey_shows_white_and_tells_no_range(
    top: int, is_read: bool, tmp_path: Path
) -> None:
    values = np.array([[0, 60000, top]], np.uint16)
    deep_png(tmp_path / "x.png", values[:, :, None], clear=(60000,))
    if is_read:
        assert grey_of(tmp_path / "x.png").tolist() == [[0, 255, 255]]
    else:
        assert "the largest is 4095" in why_unreadable(tmp_path / "x.png")


def stack(path: Path) -> None:
    frames = [Image.new("L", (4, 4), shade) for shade in (10, 20, 30)]
    more: dict[str, Any] = {"lossless": True} if path.suffix == ".webp" else {}
    frames[0].save(path, save_all=True, append_images=frames[1:], **more)


@pytest.mark.parametrize("kind", ["tif", "gif", "webp", "png"])
def test_the_named_frame_of_a_stack_or_a_moving_picture_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{kind}"
    stack(path)
    assert grey_of_frame(path, 2) == 20
    with pytest.raises(Unreadable, match=r"it has 3 frames, and \?frame=4 is named"):
        read_pixels(path, frame=4)
    if kind == "tif":
        assert why_unreadable(path) == "it has 3 frames; name one: folder:PATH?frame=1"
    else:
        assert grey_of_frame(path, None) == 10


def grey_of_frame(path: Path, frame: int | None) -> int:
    pixels = read_pixels(path, frame=frame)
    assert pixels.min() == pixels.max()
    return int(pixels.max())


def test_a_small_copy_before_the_picture_is_not_taken_for_it(tmp_path: Path) -> None:
    small, large = Image.new("L", (4, 4), 20), Image.new("L", (8, 8), 10)
    large.save(tmp_path / "x.tif", save_all=True, append_images=[small])
    assert grey_of_frame(tmp_path / "x.tif", None) == 10, "nor is one after it, that has no tag, a frame"
    large.encoderinfo = {"tiffinfo": {254: 0}}
    small.save(tmp_path / "x.tif", save_all=True, append_images=[large], tiffinfo={254: 1})
    assert grey_of_frame(tmp_path / "x.tif", None) == 10
    small.save(tmp_path / "x.tif", save_all=True, append_images=[large])
    assert "it has 2 frames" in why_unreadable(tmp_path / "x.tif")
    small.save(tmp_path / "x.nef", "TIFF", tiffinfo={254: 1, 330: 8})
    assert "camera's raw picture" in why_unreadable(tmp_path / "x.nef")


def test_the_window_of_a_site_is_that_of_the_named_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(np.full((4, 4), top, np.uint16)) for top in (200, 4000)]
    frames[0].save(tmp_path / "x.tif", save_all=True, append_images=frames[1:])
    values = present(numbers_of(tmp_path / "x.tif", 2))
    assert values.max() == 4000
    assert numbers_of(tmp_path / "x.tif", 1).max() == 200  # type: ignore[union-attr]


def test_a_jpeg_of_which_a_copy_broke_off_is_refused(tmp_path: Path) -> None:
    whole = tmp_path / "whole.jpg"
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(whole)
    content = whole.read_bytes()
    (tmp_path / "half.jpg").write_bytes(content[: len(content) // 2] + bytes(len(content) // 2))
    (tmp_path / "padded.jpg").write_bytes(content + bytes(512))
    assert "it is cut off" in why_unreadable(tmp_path / "half.jpg")
    assert np.array_equal(read_pixels(tmp_path / "padded.jpg"), read_pixels(whole))


@pytest.mark.parametrize("settings", [{}, {"optimize": True}, {"restart_marker_blocks": 3}, {"subsampling": 0}])
def test_a_jpeg_of_which_a_part_is_lost_is_refused_and_a_changed_one_said(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    path, size = tmp_path / "x.jpg", 256
    Image.fromarray(np.zeros((1024, 1024, 3), np.uint8)).save(path, **settings)  # its codes may be zeros
    assert np.unique(read_pixels(path)).tolist() == [0]
    Image.fromarray(RNG.integers(0, 256, (size, size, 3), np.uint8)).save(path, **settings)
    content, pixels = path.read_bytes(), read_pixels(path)
    with path.open("rb") as file, Image.open(file) as image:
        assert np.array_equal(pixels, np.asarray(image))
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes(512) + content[middle + 512 :])
    assert why_unreadable(path) == "a part in its middle is lost: zeros stand for it"
    path.write_bytes(content[:middle] + content[middle + 9000 :])
    with remarks_on_pictures() as said, path.open("rb") as file, Image.open(file) as image:
        assert np.array_equal(read_pixels(path), np.asarray(image))
    assert list(said) == ["its pixel data do not fit its size: a part of the picture may be damaged"]


def test_a_jpeg_with_a_preview_in_its_head_and_more_behind_its_end_is_whole(tmp_path: Path) -> None:
    preview, path = io.BytesIO(), tmp_path / "x.jpg"
    Image.fromarray(RNG.integers(0, 256, (16, 16, 3), np.uint8)).save(preview, "JPEG")
    exif = Image.Exif()
    exif[0x010E] = "a camera's"
    picture = Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8))
    picture.save(path, exif=exif.tobytes() + preview.getvalue(), comment=b"\xff\xda\xff\xd9" + bytes(200))
    content = path.read_bytes()
    for more in (b"", preview.getvalue(), bytes(300)):
        path.write_bytes(content[:2] + b"\xff\xff" + content[2:] + more)
        with remarks_on_pictures() as said, Image.open(path) as image:
            assert np.array_equal(read_pixels(path), np.asarray(image))
        assert not said


@pytest.mark.parametrize("kind", ["bmp", "dds", "pcx", "ppm", "sgi", "tga", "tif"])
def test_a_file_whose_second_half_is_zeros_is_said(kind: str, tmp_path: Path) -> None:
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(tmp_path / f"x.{kind}")
    content = (tmp_path / f"x.{kind}").read_bytes()
    for end, count in ((content[-200:], 0), (bytes(200), 1)):
        (tmp_path / f"x.{kind}").write_bytes(content[: len(content) // 2].ljust(len(content) - 200, b"\0") + end)
        with remarks_on_pictures() as said:
            read_pixels(tmp_path / f"x.{kind}")
        assert len(said) == count


@pytest.mark.parametrize("kind", ["webp", "avif"])
def test_what_ends_in_zeros_is_refused_where_its_decoder_fills_in_colours(kind: str, tmp_path: Path) -> None:
    if not features.check(kind):
        pytest.skip(f"this Pillow reads no {kind}")
    whole = tmp_path / f"whole.{kind}"
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), np.uint8)).save(whole)
    content = whole.read_bytes()
    read_pixels(whole)
    (tmp_path / f"half.{kind}").write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    assert "it is cut off" in why_unreadable(tmp_path / f"half.{kind}")
    if kind == "webp":
        (tmp_path / "padded.webp").write_bytes(content + bytes(512))
        assert np.array_equal(read_pixels(tmp_path / "padded.webp"), read_pixels(whole))


def of_table(path: Path, top: int) -> None:
    """Write a TIFF whose table of colours has entries up to a number."""
    image = Image.new("P", (2, 2), 1)
    image.putpalette(bytes(3) + bytes([255] * 3))
    image.save(path, "TIFF")
    path.write_bytes(path.read_bytes().replace(b"\0\xff", top.to_bytes(2, "little")))


def of_fits(path: Path) -> None:
    """Write numbers of 16 bits from 0, which FITS has with signs and a zero to add."""
    cards = {"SIMPLE": "T", "BITPIX": 16, "NAXIS": 2, "NAXIS1": 2, "NAXIS2": 1, "BZERO": 32768}
    head = "".join(f"{name:8}= {value:>20}".ljust(80) for name, value in cards.items()) + "END"
    path.write_bytes(
        head.ljust(2880).encode() + (np.array([0, 60000]) - 32768).astype(">i2").tobytes().ljust(2880, b"\0")
    )


def of_tga(path: Path) -> None:
    """Write a TGA of 32 bits that states no opacity, and uses its fourth byte otherwise."""
    head = struct.pack("<3B5s4H2B", 0, 0, 2, b"", 0, 0, 2, 1, 32, 0x20)
    path.write_bytes(head + bytes([60, 30, 200, 0, 60, 30, 200, 128]))


def without_adobe(path: Path) -> None:
    """Write a JPEG of four inks without the mark that says how they are meant."""
    Image.new("CMYK", (8, 8)).save(path, "JPEG")
    content = path.read_bytes()
    mark = content.index(b"\xff\xee")
    path.write_bytes(content[:mark] + content[mark + 2 + int.from_bytes(content[mark + 2 : mark + 4]) :])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_bytes(b""), "it is empty"),
        (lambda path: path.write_bytes(b"no picture"), "it is no image that can be read here"),
        (lambda path: path.mkdir(), "no regular file"),
        (os.mkfifo, "no regular file"),
        (lambda path: None, "no such file"),
        (lambda path: deep_png(path, np.zeros((1, 2, 3)), (0, 0, 1)), "its one transparent colour is of 16 bits"),
        (
            lambda path: tiff(path, np.zeros((2, 8), np.uint8), tag256=2, tag277=4, photometric=2),
            "does not say what the fourth is",
        ),
        (
            lambda path: tiff(path, np.zeros((2, 6), np.uint16), tag256=2, tag277=3, tag284=2, photometric=2),
            "lie in planes",
        ),
        (lambda path: of_table(path, 255), "its table of colours has entries of 16 bits, and uses the lower 8"),
        (lambda path: Image.new("CMYK", (2, 2)).save(path, "TIFF", tiffinfo={332: 2}), "not those of CMYK"),
        (lambda path: without_adobe(path), "it has four inks and does not say"),
        (of_tga, "does not say what the fourth is"),
        (of_fits, "of the kind FITS, which is not read here"),
        (lambda path: Image.new("1", (8, 8)).save(path, "XBM"), "of the kind XBM, which is not read here"),
        (lambda path: Image.new("L", (8, 8)).save(path, "EPS"), "of the kind EPS, which is not read here"),
        (lambda path: Image.new("RGBA", (2, 2)).save(path), "all of it is transparent"),
        (lambda path: Image.new("LA", (2, 2)).save(path, "TGA"), "all of it is transparent"),
        (lambda path: deep_png(path, np.full((1, 2, 1), 7), (7,)), "all of it is transparent"),
        (lambda path: Image.new("RGB", (2, 2)).save(path, "JPEG", exif=b"Exif\0\0none"), "its EXIF, which may say"),
    ],
)
def test_what_cannot_be_read_has_a_reason(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    make(tmp_path / "x.png")
    assert reason in why_unreadable(tmp_path / "x.png")
    assert read_image(tmp_path / "x.png") is None


def scans(root: Path) -> None:
    for name in ("a", "b"):
        for number in range(10):
            (root / name).mkdir(parents=True, exist_ok=True)
            values = np.linspace(0, 4095 if (name, number) == ("b", 3) else 2000, 64).astype(np.uint16).reshape(8, 8)
            Image.fromarray(values).save(root / name / f"{number}.png")


def test_a_site_has_one_window_and_without_one_its_images_are_left_out_with_the_reason(tmp_path: Path) -> None:
    scans(tmp_path)

    def load(window: Any) -> Any:
        contract = DataSection(classes=("a", "b"), image_size=8, window=window)
        return load_dataset(f"folder:{tmp_path}", contract=contract)

    with pytest.raises(InvalidData, match="no training image, and 20 files could not be read"):
        load(None)
    auto, given = load("auto"), load([0, 4095])
    assert np.array_equal(auto.train.images_NSS3, given.train.images_NSS3)
    assert auto.train.images_NSS3[0].max() == 2000 >> 4
    ((reason, count),) = survey(f"folder:{tmp_path}", read_all=True).reasons.items()
    assert count == 20
    assert reason.endswith("the largest is 2000; set data.window in numbers, or to 'auto' (the first of them)")


def test_a_site_whose_range_is_unsaid_joins_and_is_told_the_window(tmp_path: Path) -> None:
    scans(tmp_path)
    looked = first_look(f"folder:{tmp_path}")
    assert looked.unreadable == ()
    (remark,) = looked.remarks
    assert 'data.window; "auto" is 0 to 4095 here' in remark
    assert remark in survey(f"folder:{tmp_path}").remarks
    assert range_said(f"folder:{tmp_path}") == (remark,), "config init says it"
    assert smallest_of([f"folder:{tmp_path}"]) == (8, 8), "by which it takes the recipe"


def test_a_window_goes_upwards() -> None:
    with pytest.raises(ValueError, match="the lower one"):
        DataSection(classes=("a", "b"), window=(5, 5))
