"""`data describe --check` names copies on two sides or in two classes, and tells what its images look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedplcc.trainer.data import survey as looks
from fedplcc.trainer.data.sets.doubts import given_away
from fedplcc.trainer.data.survey import survey

RNG = np.random.default_rng(0)


def noise(size: int = 32) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (size, size, 3), np.uint8))


def put(path: Path, image: Image.Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


@pytest.mark.parametrize("kind", ["png", "bmp", "tif", "webp"])
@pytest.mark.parametrize(
    ("copy", "is_said"), [("test/a", True), ("train/b", True), ("test/b", True), ("train/a", False)]
)
def test_a_copy_is_named_where_it_is_on_another_side_or_in_another_class(
    kind: str, copy: str, is_said: bool, tmp_path: Path
) -> None:
    for side in ("train", "test"):
        for name in "ab":
            for number in range(3):
                put(tmp_path / side / name / f"{number}.png", noise())
    with Image.open(tmp_path / "train/a/0.png") as one:
        lossless = {"lossless": True} if kind == "webp" else {}
        one.save(tmp_path / copy / f"copy.{kind}", **lossless)  # type: ignore[arg-type]
    found = survey(f"folder:{tmp_path}", read_all=True)
    side = copy.partition("/")[0]
    expected = tuple(sorted(["train: train/a/0.png", f"{side}: {copy}/copy.{kind}"], reverse=side == "test"))
    assert [set(names) for names in found.copies] == ([set(expected)] if is_said else [])
    assert any("the same picture on two sides or in two classes: 1" in line for line in found.lines()) == is_said


def test_pictures_that_differ_in_one_pixel_that_no_glance_sees_are_no_copies(tmp_path: Path) -> None:
    image = noise()
    put(tmp_path / "train/a/0.png", image)
    image.putpixel((1, 1), (0, 0, 0) if image.getpixel((1, 1)) != (0, 0, 0) else (1, 1, 1))
    put(tmp_path / "test/a/0.png", image)
    assert survey(f"folder:{tmp_path}", read_all=True).copies == ()


def test_brightness_and_pictures_that_are_nearly_black_or_white_are_told(tmp_path: Path) -> None:
    for number, shade in enumerate((0, 3, 100, 200, 255)):
        put(tmp_path / "train/a" / f"{number}.png", Image.new("L", (20, 20), shade))
    put(tmp_path / "test/a/0.png", Image.new("L", (3, 3), 50))
    found = survey(f"folder:{tmp_path}", read_all=True)
    assert found.brightness == pytest.approx((0, 608 / 6, 255))
    assert (found.num_dark, found.num_bright) == (2, 1)
    assert (
        "mean brightness of an image: 0 to 255, on average 101 of 255; nearly black: 2, nearly white: 1"
        in found.lines()
    )


def test_what_cannot_be_read_is_grouped_by_its_reason(tmp_path: Path) -> None:
    put(tmp_path / "train/a/0.png", noise())
    put(tmp_path / "test/a/0.png", noise())
    for number in range(3):
        (tmp_path / "train/a" / f"empty{number}.png").write_bytes(b"")
    (tmp_path / "test/a/x.heic").write_bytes(b"nothing")
    found = survey(f"folder:{tmp_path}", read_all=True)
    assert found.reasons == {"it is empty": 3, "it is no image that can be read here": 1}
    assert "  3 of them: it is empty" in found.lines()


def test_a_class_that_is_known_without_its_pictures_is_said(tmp_path: Path) -> None:
    """A model of "all keyboards are grey" is right on the site's own test images, and on nobody else's."""
    for number in range(20):
        for name, picture in (
            ("mug", noise()),
            ("mouse", noise()),
            ("keyboard", noise().convert("L" if number else "RGB")),
        ):
            put(tmp_path / name / f"{number}.{'jpg' if name == 'mouse' else 'png'}", picture)
    said = [
        text for text in survey(f"folder:{tmp_path}", read_all=True).remarks if "in place of what they show" in text
    ]
    assert [text.partition(": ")[0] for text in said] == [
        "19 of the 20 images of keyboard are grey, and 0 of the 40 others",
        "20 of the 20 images of mouse are .jpg files, and 0 of the 40 others",
    ]
    assert not given_away({"a": [("grey", "", "")] * 9, "b": [("in colour", "", "")] * 20}), "too few to say"


def test_another_encoding_or_size_of_a_training_picture_is_said_and_no_other_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        rough = RNG.integers(0, 256, (4, 5, 3), np.uint8)
        picture = Image.fromarray(rough).resize((120, 90), Image.Resampling.BICUBIC)
        put(tmp_path / "train/a" / f"{number}.png", picture)
        if number < 5:
            picture = picture.resize(((120, 90), (120, 90), (60, 45), (120, 90), (120, 90))[number])
            turns = {3: Image.Transpose.ROTATE_90, 4: Image.Transpose.FLIP_LEFT_RIGHT}
            turned = picture.transpose(turns[number]) if number in turns else picture
            put(tmp_path / f"test/{'abaab'[number]}/{number}.jpg", turned)
    put(tmp_path / "test/a/other.jpg", noise(64))
    put(tmp_path / "train/a/white.png", Image.new("RGB", (64, 64), "white"))
    put(tmp_path / "test/a/white.jpg", Image.new("RGB", (60, 60), "white"))
    found = survey(f"folder:{tmp_path}", read_all=True)
    assert found.copies == ()
    (said,) = [remark for remark in found.remarks if "in another size, turned or mirrored" in remark]
    assert said.startswith("5 of the test images look as training images do")
    assert "test: test/a/2.jpg and train: train/a/2.png" in said
    assert "test: test/a/3.jpg and train: train/a/3.png" in said
    monkeypatch.setattr(looks, "MOST_PAIRS", 1)
    (said,) = [remark for remark in survey(f"folder:{tmp_path}", read_all=True).remarks if "encoding or size" in remark]
    assert said.startswith("too many images to look for")
