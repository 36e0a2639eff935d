"""A look at a client's data before it joins says at once what would end its first task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.first_look import first_look
from fedplcc.trainer.data.subset import NUM_LOOKED_AT
from fedplcc.trainer.data.survey import smallest_of, survey


def a_picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)


def test_counts_are_of_all_images_and_a_few_are_opened(tmp_path: Path) -> None:
    for i in range(40):
        a_picture(tmp_path / ("cat" if i % 2 else "dog") / f"{i // 2}.png")
    looked = first_look(f"folder:{tmp_path}")
    assert looked.class_counts == {"cat": 16, "dog": 16}
    assert (looked.num_looked_at, looked.unreadable, looked.smallest_side) == (NUM_LOOKED_AT, (), 8)
    assert first_look(f"folder:{tmp_path}", samples_per_class=3).class_counts == {"cat": 3, "dog": 3}


@pytest.mark.parametrize("split", ["", "train"])
def test_empty_class_folders_are_refused(tmp_path: Path, split: str) -> None:
    for name in ("cat", "dog"):
        (tmp_path / split / name).mkdir(parents=True)
    if split:
        a_picture(tmp_path / "test" / "cat" / "1.png")
    with pytest.raises(InvalidData, match="has no training image; a client needs at least one"):
        first_look(f"folder:{tmp_path}")


def test_files_of_which_none_can_be_read_are_refused_with_one_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for i in range(30):
        (tmp_path / "cat" / f"{i}.dcm").write_bytes(b"no picture")
    with pytest.raises(
        InvalidData, match=r"none of the 8 training images that were looked at can be read, 'cat/0\.dcm'"
    ):
        first_look(f"folder:{tmp_path}")


def test_some_files_that_cannot_be_read_are_named_and_do_no_harm(tmp_path: Path) -> None:
    a_picture(tmp_path / "train" / "cat" / "1.png")
    a_picture(tmp_path / "test" / "cat" / "1.png")
    (tmp_path / "train" / "cat" / "2.png").write_bytes(b"no picture")
    looked = first_look(f"folder:{tmp_path}")
    assert (looked.class_counts, looked.num_looked_at, looked.unreadable) == ({"cat": 2}, 2, ("train/cat/2.png",))
    assert looked.why == "it is no image that can be read here"


def test_a_class_of_which_no_file_can_be_read_is_named(tmp_path: Path) -> None:
    for side in ("train", "test"):
        for i in range(40):
            a_picture(tmp_path / side / "cat" / f"{i}.png")
        (tmp_path / side / "owl").mkdir()
        (tmp_path / side / "owl" / "1.png").write_bytes(b"no picture")
    said = [f"no image for {side}ing that was looked at can be read: owl" for side in ("train", "test")]
    spec = f"folder:{tmp_path}"
    assert said[0] in first_look(spec).remarks
    assert said[1] in first_look(spec, evaluate_only=True).remarks
    assert said[0] in survey(spec).remarks
    assert said == [each for each in survey(spec, read_all=True).remarks if "can be read" in each]
    assert "the data name their own test images: test_every = 3 does nothing" in survey(spec, test_every=3).remarks


def test_pictures_whose_numbers_are_of_a_small_range_are_said(tmp_path: Path) -> None:
    for side in ("train", "test"):
        (tmp_path / side / "cat").mkdir(parents=True)
        Image.fromarray(np.eye(16, dtype=np.uint8)).save(tmp_path / side / "cat" / "1.png")
    said = "no number in the images is above 1 of 255: all are nearly black; scale them to 0 to 255"
    assert said in first_look(f"folder:{tmp_path}").remarks
    assert said in survey(f"folder:{tmp_path}").remarks


def test_the_smallest_image_is_that_of_the_smallest_side_whoever_asks(tmp_path: Path) -> None:
    for number, size in enumerate([(300, 60), (100, 100)]):
        (tmp_path / "cat").mkdir(exist_ok=True)
        Image.new("RGB", size, (200, 90, number)).save(tmp_path / "cat" / f"{number}.png")
    spec = f"folder:{tmp_path}"
    assert smallest_of([spec]) == (60, 300)
    assert first_look(spec).smallest_side == 60
