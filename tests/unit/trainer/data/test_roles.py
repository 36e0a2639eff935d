"""An image's role follows from its name: what arrives, leaves or is no image changes nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import load_dataset
from fedplcc.trainer.data.loading import ClientData
from fedplcc.trainer.data.record import DataRecord
from fedplcc.trainer.data.roles import TEST, VALIDATION, has_role, key_of
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.data.validation import held_out

RNG = np.random.default_rng(0)


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)).save(path)


def load(root: Path, more: str = "", **keys: Any) -> ClientData:
    known = {name: keys.pop(name) for name in ("samples_per_class", "fraction", "validation_per_class") if name in keys}
    contract = DataSection.model_validate({"classes": ["a", "b"], "image_size": 8, **keys})
    return load_dataset(f"folder:{root}{more}", contract=contract, **known)


def sides(data: ClientData) -> dict[bytes, str]:
    """The side of each image, by its pixels."""
    named = {"train": data.train, "validation": data.validation, "test": data.test}
    return {image.tobytes(): name for name, side in named.items() for image in side.images_NSS3}


@given(first=st.integers(0, 10**6), every=st.integers(2, 12), blocks=st.integers(1, 6), width=st.integers(0, 8))
@pytest.mark.parametrize("role", [TEST, VALIDATION])
def test_of_consecutive_numbers_one_in_every_k_has_a_role(
    role: str, first: int, every: int, blocks: int, width: int
) -> None:
    start = first // every * every
    names = [f"scan-{number:0{width}d}_v" for number in range(start, start + blocks * every)]
    assert sum(has_role(name, role, every) for name in names) == blocks


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("name", ["{}0", "IMG_{}_7", "p{}/left"])
def test_of_other_names_about_one_in_every_k_has_a_role(name: str, every: int) -> None:
    found = sum(has_role(name.format(number), TEST, every) for number in range(4000))
    assert abs(found - 4000 / every) < 5 * (4000 / every) ** 0.5


def test_an_ending_and_the_form_of_an_accent_do_not_change_the_name() -> None:
    assert key_of("x/e\u0301t\u00e9 1.JPG") == key_of("x/\u00e9te\u0301 1.png") == "x/\u00e9t\u00e9 1"
    assert key_of("1.2.840.7") == "1.2.840.7"


@pytest.mark.parametrize("more", [{"validation_every": 3}, {"validation_per_class": 4}, {"samples_per_class": 9}])
@pytest.mark.parametrize("names", [["{:02d}.png", "x{}.jpg"], ["scan-{}.png"], ["p{}/left.png", "p{}/right.png"]])
def test_what_arrives_or_is_no_image_changes_no_others_role(
    tmp_path: Path, names: list[str], more: dict[str, Any]
) -> None:
    for i in range(20):
        put(tmp_path / f"{'ab'[i % 2]}" / names[i % len(names)].format(i))
    before = sides(load(tmp_path, **more))
    for name in ("a/0000.png", "a/new.png", "b/zz.png", "b/aa/0.png"):
        put(tmp_path / name)
    (tmp_path / "a/00.xml").write_text("<annotation/>")
    (tmp_path / "b/notes.txt").write_text("none")
    (tmp_path / "b/00b.png").write_bytes(b"damaged")
    after = sides(load(tmp_path, **more))
    assert len(before) >= 16
    # Of a number of images, one that arrives may take the place of one; then that one is on no other side than training.
    moved = [(before[image], side) for image, side in after.items() if before.get(image, side) != side]
    allowed = {("validation", "train")} if "validation_per_class" in more else set()
    assert set(moved) <= allowed
    gone = [side for image, side in before.items() if image not in after]
    assert len(gone) <= (4 if "samples_per_class" in more else 0)
    assert set(gone) <= {"train"}


def test_one_file_beside_each_image_leaves_the_split_as_it_is(tmp_path: Path) -> None:
    for name in "ab":
        for i in range(20):
            put(tmp_path / name / f"{i:02d}.jpg")
    plain = {every: sides(load(tmp_path, test_every=every)) for every in (2, 4, 5, 10)}
    for ending in (".xml", ".json", ".txt", "_mask.json", ".jpg.md", ""):
        for path in [*tmp_path.rglob("*.jpg")]:
            path.with_name(path.stem + ending).write_text("{}")
    for every, before in plain.items():
        assert list(before.values()).count("test") == 2 * (20 // every)
        assert sides(load(tmp_path, test_every=every)) == before
    assert any("files .xml" in remark for remark in open_source(f"folder:{tmp_path}", 5).remarks)


GROUPED = [f"p{patient}_{view}.png" for patient in range(30) for view in range(3)]


def test_a_pattern_names_groups_and_none_is_on_two_sides(tmp_path: Path) -> None:
    for number, name in enumerate(GROUPED):
        put(tmp_path / "ab"[number % 2] / name)
    source = open_source(f"folder:{tmp_path}?group=(p\\d+)_", 5)
    assert source.train.groups is not None
    assert source.test.groups is not None
    assert not set(source.train.groups) & set(source.test.groups)
    assert len(set(source.test.groups)) == 6
    aside = held_out(
        source.train.labels_N,
        source.class_names,
        every=None,
        per_class=4,
        seed=0,
        keys=source.train.keys,
        groups=source.train.groups,
    )
    chosen = {source.train.groups[i] for i in aside.tolist()}
    left = {group for i, group in enumerate(source.train.groups) if i not in set(aside.tolist())}
    assert chosen
    assert not chosen & left
    data = load(tmp_path, "?group=(p\\d+)_", validation_every=4)
    assert len(data.validation) % 3 == 0 < len(data.validation)


def test_no_client_validates_on_groups_that_another_part_trains_on(tmp_path: Path) -> None:
    for number, name in enumerate(GROUPED):
        put(tmp_path / "ab"[number % 2] / name)
    contract = DataSection.model_validate({"classes": ["a", "b"], "image_size": 8, "validation_every": 4})
    specs = [f"part:{number}/2:domain:folder:{tmp_path}?group=(p\\d+)_" for number in range(2)]
    parts = [load_dataset(spec, contract=contract) for spec in specs]
    trained, validated = (
        {name.split("_")[0][2:] for part in parts for name, _ in getattr(part, side).marks}
        for side in ("train", "validation")
    )
    assert validated
    assert not trained & validated
    with pytest.raises(InvalidData, match=r"set data\.validation_every, which goes by a group's name"):
        load_dataset(specs[0], contract=contract, validation_per_class=2)


def test_a_group_on_both_sides_of_folders_and_a_pattern_that_finds_nothing_are_refused(tmp_path: Path) -> None:
    for side in ("train", "test"):
        put(tmp_path / side / "a" / "p1_0.png")
    with pytest.raises(InvalidData, match=r"the group 'p1' has images for train and for test"):
        load(tmp_path, "?group=p\\d+")
    with pytest.raises(InvalidData, match=r"finds nothing in .*p1_0.png; every image needs a group"):
        load(tmp_path, "?group=lesion\\d+")
    with pytest.raises(InvalidData, match="is no pattern"):
        load(tmp_path, "?group=(p")


def test_own_validation_images_are_never_trained_on(tmp_path: Path) -> None:
    for side, count in (("train", 6), ("valid", 3), ("test", 4)):
        for i in range(count):
            put(tmp_path / side / "a" / f"{i}.png")
    data = load(tmp_path, validation_every=2)
    assert (len(data.train), len(data.validation), len(data.test)) == (6, 3, 4)


def test_a_run_that_goes_on_reads_the_images_it_began_with_and_names_those_that_arrived(tmp_path: Path) -> None:
    for number in range(30):
        put(tmp_path / "ab"[number % 2] / f"{number}.png")
    contract = DataSection(classes=("a", "b"), image_size=8, validation_every=4)
    for subset in ({}, {"samples_per_class": 5}, {"fraction": 0.5}):
        before = load_dataset(f"folder:{tmp_path}", contract=contract, **subset)
        named = {"train": before.train, "validation": before.validation, "test": before.test}
        record = DataRecord.of({side: (images.marks, images.labels_N.tolist()) for side, images in named.items()})
        arrived = [tmp_path / "a" / "new.png", tmp_path / "b" / "0000.png"]
        for path in arrived:
            put(path)
        after = load_dataset(f"folder:{tmp_path}", contract=contract, began=record, **subset)
        for side, images in named.items():
            assert getattr(after, side).marks == images.marks
            assert np.array_equal(getattr(after, side).images_NSS3, images.images_NSS3)
        assert sorted(after.arrived) == ([] if subset else ["a/new.png", "b/0000.png"])
        for path in arrived:
            path.unlink()
