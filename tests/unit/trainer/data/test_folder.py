from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.images.pixels import read_pixels
from fedplcc.trainer.data.loading import ClientData, ImageSet, remarks
from fedplcc.trainer.data.sets.folder import read_image as maybe_image
from fedplcc.trainer.data.specs import open_source
from tests.unit.trainer.builders import a_contract

CONTRACT = a_contract(image_size=8)


def put(path: Path, shade: float | tuple[int, ...] = 0, mode: str = "L", size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, shade).save(path)


def read_image(path: Path) -> Any:
    """Loosely typed: an image that can be read."""
    return maybe_image(path)


def shades(image_set: ImageSet) -> dict[str, list[int]]:
    """First pixel's red of each image, by class name."""
    return {
        CONTRACT.classes[label]: image_set.images_NSS3[image_set.labels_N == label, 0, 0, 0].tolist()
        for label in np.unique(image_set.labels_N)
    }


def load(root: Path, **kwargs: Any) -> ClientData:
    return load_dataset(f"folder:{root}", contract=CONTRACT, **kwargs)


def test_train_and_test_folders_are_the_splits_and_classes_map_by_name(tmp_path: Path) -> None:
    put(tmp_path / "train/owl/1.png", 10)
    put(tmp_path / "train/cat/1.png", 20)
    put(tmp_path / "train/cat/2.png", 30)
    put(tmp_path / "test/owl/1.png", 40)
    put(tmp_path / "raw/unicorn/1.png")  # beside the splits: left alone
    data = load(tmp_path)
    assert data.classes == ("cat", "dog", "owl")
    assert shades(data.train) == {"cat": [20, 30], "owl": [10]}
    assert shades(data.test) == {"owl": [40]}
    assert data.class_counts == (2, 0, 1)
    assert data.train.images_NSS3.dtype == np.uint8
    assert data.train.labels_N.dtype == np.int64


def test_settings_that_do_nothing_with_these_files_are_named(tmp_path: Path) -> None:
    contract = a_contract(image_size=8, test_every=3, validation_every=4, window=(0, 9))
    for number in range(12):
        for place in ("given/train", "given/test", "given/val", "divided"):
            put(tmp_path / place / "cat" / f"{number}.png", number)
    given, divided = (load_dataset(f"folder:{tmp_path / name}", contract=contract) for name in ("given", "divided"))
    assert sorted(given.idle) == ["data.test_every", "data.validation_every", "data.window"]
    assert [*divided.idle] == ["data.window"]
    assert load_dataset(f"folder:{tmp_path / 'given'}", contract=CONTRACT).idle == {}
    put(tmp_path / "divided" / "cat" / "20.png", 7, mode="I;16")
    assert load_dataset(f"folder:{tmp_path / 'divided'}", contract=contract).idle == {}
    both = load_dataset(f"folder:{tmp_path / 'divided'}", contract=contract, validation_per_class=2)
    assert both.idle == {"data.validation_every": "validation_per_class goes before it"}


def test_describing_counts_files_without_opening_them(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / "parrot").mkdir(exist_ok=True)
        (tmp_path / f"parrot/{i}.jpg").write_bytes(b"not read")
    (tmp_path / "cat").mkdir()
    assert describe(f"folder:{tmp_path}") == {"cat": 0, "parrot": 8}
    assert describe(f"folder:{tmp_path}", samples_per_class=3) == {"cat": 0, "parrot": 3}
    assert describe(f"folder:{tmp_path}", test_every=2) == {"cat": 0, "parrot": 5}


def test_an_unknown_class_folder_is_named_with_the_known_classes(tmp_path: Path) -> None:
    put(tmp_path / "cat/1.png")
    put(tmp_path / "dogs/1.png")
    with pytest.raises(InvalidData, match=r"class folder 'dogs', .* classes are cat, dog, owl; did you mean 'dog'\?"):
        load(tmp_path)


def test_an_unknown_class_folder_is_an_error_even_without_a_file(tmp_path: Path) -> None:
    put(tmp_path / "cat/1.png")
    (tmp_path / "zebra").mkdir()
    with pytest.raises(InvalidData, match="class folder 'zebra'"):
        load(tmp_path)


def test_unreadable_files_are_skipped_counted_and_named(tmp_path: Path) -> None:
    put(tmp_path / "train/cat/ok.png", 7)
    (tmp_path / "train/cat/notes.txt").write_text("hello")
    (tmp_path / "train/cat/zero.png").write_bytes(b"")
    whole = tmp_path / "test/cat/whole.jpg"
    put(whole, 9, size=(64, 64))
    (tmp_path / "test/cat/cut.jpg").write_bytes(whole.read_bytes()[:-200])
    data = load(tmp_path)
    assert data.unreadable == ("train/cat/zero.png", "test/cat/cut.jpg")
    assert (len(data.train), len(data.test)) == (1, 1)


def test_a_subset_takes_the_next_image_in_the_place_of_an_unreadable_one(tmp_path: Path) -> None:
    for i in range(8):
        put(tmp_path / f"train/cat/{i}.png", i)
    (tmp_path / "test").mkdir()
    chosen = shades(load(tmp_path, samples_per_class=5).train)["cat"]
    (tmp_path / f"train/cat/{chosen[0]}.png").write_bytes(b"damaged")
    data = load(tmp_path, samples_per_class=5)
    replaced = shades(data.train)["cat"]
    assert len(replaced) == 5
    assert set(chosen[1:]) < set(replaced)
    assert data.unreadable == (f"train/cat/{chosen[0]}.png",)


def test_no_training_image_is_an_error_that_counts_the_unreadable(tmp_path: Path) -> None:
    put(tmp_path / "test/cat/1.png")
    (tmp_path / "train/cat").mkdir(parents=True)
    with pytest.raises(InvalidData, match="has no training image; a client needs at least one"):
        load(tmp_path)
    (tmp_path / "train/cat/1.png").write_bytes(b"damaged")
    with pytest.raises(InvalidData, match="has no training image, and 1 files could not be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("folders", "sentence"),
    [(["train/cat"], "has train/ without test/"), (["test/cat"], "has test/ without train/"), ([], "no class folders")],
)
def test_half_a_layout_is_an_error_that_says_what_is_missing(tmp_path: Path, folders: list[str], sentence: str) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(InvalidData, match=sentence):
        load(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"cannot read the folder .*nowhere: No such file"):
        load(tmp_path / "nowhere")
    for wrong, advice in (
        ("nowhere", "; it is looked for from the folder that"),
        ("nowhere?Labels=a.csv", "; write folder:"),
    ):
        with pytest.raises(InvalidData, match=f"No such file or directory{advice}"):
            load(Path(wrong))
    put(tmp_path / "file.png")
    with pytest.raises(InvalidData, match=r"cannot read the folder .*file\.png: Not a directory"):
        load(tmp_path / "file.png")


def test_smaller_copies_and_other_sizes_in_a_tiff_are_no_frames(tmp_path: Path) -> None:
    pages = [Image.new("L", (8, 8), 10), Image.new("L", (4, 4), 20)]
    pages[0].save(tmp_path / "x.tif", save_all=True, append_images=pages[1:])
    assert set(read_pixels(tmp_path / "x.tif", frame=None).flat) == {10}


def test_a_file_of_a_few_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.pgm").write_bytes(b"P5 4 1 100\n" + bytes([0, 25, 50, 100]))
    assert read_pixels(tmp_path / "x.pgm")[0, :, 0].tolist() == [0, 64, 128, 255]


def test_one_class_whose_images_lie_in_folders_is_said(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        put(tmp_path / "animals" / name / "1.png")
    assert "all images are of one class, 'animals', and lie in its folders cat, dog" in remarks(f"folder:{tmp_path}")[0]


def test_a_folder_of_something_else_has_few_sentences_and_all_files_in_them(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    for number in range(40):
        (tmp_path / "cat" / f"a.kind{number}").write_bytes(b"nothing")
        (tmp_path / "cat" / f"b{number}.txt").write_bytes(b"nothing")
    said = [remark for remark in remarks(f"folder:{tmp_path}") if remark.endswith("left out, no images")]
    assert len(said) == 9
    assert "40 files .txt: left out, no images" in said
    assert "33 of 33 more kinds: left out, no images" in said


@pytest.mark.parametrize("name", ["seg", "m\u00e4sk", "mask", "masks of rats", "1_maskot"])
def test_names_of_masks_are_said_only_beside_their_images(name: str, tmp_path: Path) -> None:
    put(tmp_path / "a" / f"{name}.png")
    put(tmp_path / "a" / "1.png")
    assert not any("masks" in each for each in open_source(f"folder:{tmp_path}", 2).remarks)
