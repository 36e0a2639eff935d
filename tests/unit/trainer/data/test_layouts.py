"""A folder is read as people lay it out, and a labels file beside it has the same checks."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import load_dataset
from fedplcc.trainer.data.loading import load_split, remarks
from fedplcc.trainer.data.specs import open_source


def put(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(path)


def names(root: Path, more: str = "") -> dict[str, list[str]]:
    """The images of each side, and the classes."""
    source = open_source(f"folder:{root}{more}", 5)
    train, aside = source.train, set() if source.train.aside is None else set(source.train.aside.tolist())
    return {
        "classes": list(source.class_names),
        "train": [train.name(i) for i in range(len(train)) if i not in aside],
        "validation": [train.name(i) for i in sorted(aside)],
        "test": [source.test.name(i) for i in range(len(source.test))],
    }


@pytest.mark.parametrize(
    ("train", "test"),
    [("train", "test"), ("Training", "Testing"), ("train_set", "test-set"), ("Training", "test"), ("Train", "Valid")],
)
def test_folders_for_training_and_testing_are_known_by_their_usual_names(train: str, test: str, tmp_path: Path) -> None:
    for side in (train, test):
        for name in ("cat", "dog"):
            put(tmp_path / side / name / "1.png")
    found = names(tmp_path)
    assert found["classes"] == ["cat", "dog"]
    assert found["train"] == [f"{train}/{name}/1.png" for name in ("cat", "dog")]
    assert found["test"] == [f"{test}/{name}/1.png" for name in ("cat", "dog")]
    said = " ".join(remarks(f"folder:{tmp_path}"))
    assert ("is the test set" in said) == test.lower().startswith("val")


@pytest.mark.parametrize("one", ["Train", "valid"])
def test_a_class_may_be_called_like_a_side(one: str, tmp_path: Path) -> None:
    for name in (one, "bus", "invalid"):
        put(tmp_path / name / "1.png")
        put(tmp_path / name / "2020" / "2.png")
    assert names(tmp_path)["classes"] == sorted([one, "bus", "invalid"])


@pytest.mark.parametrize("loose", ["train/1.png", "test/1.png", "val/1.png"])
def test_images_straight_in_a_side_are_an_error(loose: str, tmp_path: Path) -> None:
    for side in ("train", "test", "val"):
        put(tmp_path / side / "cat" / "1.png")
    put(tmp_path / loose)
    with pytest.raises(
        InvalidData, match=f"images lie straight in .*{loose.partition('/')[0]}; put the images of each class"
    ):
        names(tmp_path)


def test_a_test_folder_without_classes_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "train" / "cat" / "1.png")
    put(tmp_path / "test" / "1.png")
    with pytest.raises(InvalidData, match="images lie straight in"):
        names(tmp_path)
    put(tmp_path / "Training" / "cat" / "1.png")
    with pytest.raises(InvalidData, match="two folders for train: Training and train"):
        names(tmp_path)


@pytest.mark.parametrize(
    "system", ["__MACOSX", "@eaDir", "lost+found", "~snapshot", "$RECYCLE.BIN", "System Volume Information", ".git"]
)
def test_folders_of_systems_are_no_classes(system: str, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "cat"):
        put(place / system / "1.png")
    put(tmp_path / "cat" / "1.png")
    put(tmp_path / "dog" / "2.png")
    (tmp_path / "dog" / "._2.png").write_bytes(b"\0\5\x16\7")
    found = names(tmp_path)
    assert found["classes"] == ["cat", "dog"]
    assert sorted(found["train"] + found["test"]) == ["cat/1.png", "dog/2.png"]


def test_a_file_named_as_a_systems_twin_that_is_none_is_a_lost_image(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    put(tmp_path / "dog" / "2.png")
    (tmp_path / "dog" / "._2.png").write_bytes(b"\0\5\x16\7")
    (tmp_path / "dog" / "._3.png").write_bytes(b"x")
    contract = DataSection(classes=("cat", "dog"), image_size=8)
    _, unreadable = load_split(f"folder:{tmp_path}", split="all", contract=contract)
    assert [Path(name).name for name in unreadable] == ["._3.png"]


def test_classes_without_images_and_images_without_a_class_are_said(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    put(tmp_path / "loose.png")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "readme.txt").write_text("hello")
    said = " ".join(remarks(f"folder:{tmp_path}"))
    assert "class folders without an image: docs" in said
    assert "are of no class and left out" in said
    assert "1 files .txt: left out" in said


@pytest.mark.parametrize("inner", ["pets", "images"])
@pytest.mark.parametrize("sides", ["", "train/", "Test/"])
def test_a_folder_around_a_folder_is_read_through_and_said(inner: str, sides: str, tmp_path: Path) -> None:
    for side in {sides, sides and ("test/" if sides == "train/" else "Train/")}:
        for name in ("cat", "dog"):
            put(tmp_path / "pets" / inner / side / name / "1.png")
    assert names(tmp_path / "pets")["classes"] == ["cat", "dog"]
    assert "around the data: it is read, and not taken as one class" in remarks(f"folder:{tmp_path / 'pets'}")[0]


def test_a_parent_of_sites_is_said_or_refused(tmp_path: Path) -> None:
    for site in ("north", "south"):
        for name in ("cat", "dog"):
            put(tmp_path / "plain" / site / name / "1.png")
            for side in ("train", "test"):
                put(tmp_path / "sided" / site / side / name / "1.png")
    assert "is a parent of sites, and one site is folder:" in remarks(f"folder:{tmp_path / 'plain'}")[0]
    with pytest.raises(InvalidData, match=r"a data set with its own train and test folders in each of north, south"):
        names(tmp_path / "sided")


def test_class_folders_may_hold_the_sides(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for side in ("train", "test"):
            put(tmp_path / name / side / "1.png")
    found = names(tmp_path)
    assert found["classes"] == ["cat", "dog"]
    assert found["train"] == ["cat/train/1.png", "dog/train/1.png"]
    assert found["test"] == ["cat/test/1.png", "dog/test/1.png"]


def test_links_to_folders_are_followed_once_and_never_in_a_circle(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "scans" / "1.png")
    put(tmp_path / "x" / "cat" / "2.png")
    put(tmp_path / "x" / "dog" / "3.png")
    (tmp_path / "x" / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x" / "cat" / "again").symlink_to(tmp_path / "elsewhere" / "scans")
    (tmp_path / "elsewhere" / "scans" / "back").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x" / "cat" / "up").symlink_to(tmp_path)
    (tmp_path / "x" / "cat" / "root").symlink_to("/")
    (tmp_path / "x" / "dog" / "twin").symlink_to(tmp_path / "x" / "cat")
    (tmp_path / "x" / "owl").symlink_to(tmp_path / "x" / "dog")
    found = names(tmp_path / "x")
    assert len(found["train"] + found["test"]) == 3
    assert found["classes"] == ["cat", "dog", "owl"]
    assert "links to folders that are read already" in " ".join(remarks(f"folder:{tmp_path / 'x'}"))


@pytest.mark.parametrize("ending", ["", ".png", ".xyz"])
def test_pipes_sockets_and_broken_links_are_never_opened(ending: str, tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    put(tmp_path / "dog" / "2.png")
    os.mkfifo(tmp_path / "cat" / f"pipe{ending}")
    (tmp_path / "cat" / f"link{ending}").symlink_to(tmp_path / "cat" / f"pipe{ending}")
    (tmp_path / "cat" / f"null{ending}").symlink_to("/dev/zero")
    (tmp_path / "cat" / f"gone{ending}").symlink_to(tmp_path / "nothing")
    here = Path.cwd()
    os.chdir(tmp_path / "cat")  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"socket{ending}")
    finally:
        os.chdir(here)
    found = names(tmp_path)
    assert len(found["train"] + found["test"]) == 2
    said = " ".join(remarks(f"folder:{tmp_path}"))
    for what in ("2 named pipes", "1 sockets", "1 devices", "1 broken links"):
        assert what in said


def test_images_without_an_ending_or_of_a_strange_one_are_found_by_their_first_bytes(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    for name in ("IM0001", "photo.jpg_large", "1.2.840.5"):
        (tmp_path / "cat" / name).write_bytes((tmp_path / "cat" / "1.png").read_bytes())
    for name in ("1.png~", "2.png.part", "3.jpg.crdownload"):  # copies, and what has not arrived
        (tmp_path / "cat" / name).write_bytes((tmp_path / "cat" / "1.png").read_bytes())
    (tmp_path / "cat" / "unknown").write_bytes(b"nothing")
    found = names(tmp_path)
    assert len(found["train"] + found["test"]) == 4
    assert "1 files without an ending: left out, no images" in remarks(f"folder:{tmp_path}")


def test_class_folders_go_by_name_in_unicodes_composed_form(tmp_path: Path) -> None:
    put(tmp_path / "train" / "e\u0301te\u0301" / "1.png")
    put(tmp_path / "test" / "\u00e9t\u00e9" / "1.png")
    contract = DataSection(classes=("b", "\u00e9te\u0301"), image_size=8)
    data = load_dataset(f"folder:{tmp_path}", contract=contract)
    assert (data.train.labels_N.tolist(), data.test.labels_N.tolist()) == ([1], [1])
    put(tmp_path / "train" / "\u00e9t\u00e9" / "2.png")
    with pytest.raises(InvalidData, match=r"two folders of the one name 'été', U\+0065 U\+0301 .* and U\+00E9"):
        names(tmp_path)


LINES = [("scans/1.png", "mel", "train", "p1"), ("scans/2.png", "nv", "test", "p2"), ("3.png", "nv", "val", "p3")]


def labelled(
    root: Path, lines: Sequence[tuple[str, ...]], name: str = "labels.csv", columns: str = "path,label,split,group"
) -> str:
    for number in range(1, 4):
        put(root / ("3.png" if number == 3 else f"scans/{number}.png"))
    heading = tuple(columns.split(","))
    if name.endswith(".parquet"):
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        arrow = pytest.importorskip("pyarrow")
        table = {title: [line[i] for line in lines] for i, title in enumerate(heading)}
        parquet.write_table(arrow.table(table), root / name)
    else:
        mark = "\t" if name.endswith(".tsv") else ";" if "semi" in name else ","
        (root / name).write_text("".join(mark.join(line) + "\n" for line in [heading, *lines]), encoding="utf-8-sig")
    return f"?labels={name}"


@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv", "semi.csv", "labels.parquet"])
def test_a_labels_file_gives_classes_sides_and_groups(name: str, tmp_path: Path) -> None:
    assert names(tmp_path, labelled(tmp_path, LINES, name)) == {
        "classes": ["mel", "nv"],
        "train": ["scans/1.png"],
        "validation": ["3.png"],
        "test": ["scans/2.png"],
    }


def test_without_a_column_of_sides_each_image_has_its_role_by_its_group(tmp_path: Path) -> None:
    lines = [(f"{i}.png", "ab"[i % 2], f"lesion{i // 4}") for i in range(100)]
    for path, _, _ in lines:
        put(tmp_path / path)
    source = open_source(f"folder:{tmp_path}{labelled(tmp_path, lines, columns='path,label,lesion')}&group=lesion", 5)
    assert source.train.groups is not None
    assert source.test.groups is not None
    assert len(set(source.test.groups)) == 5
    assert not set(source.train.groups) & set(source.test.groups)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([("1.png", "mel", "train", "p1")], "lists 1 images that are not in .*, 1.png among them"),
        ([LINES[0], LINES[0]], "line 3 of .* lists scans/1.png again"),
        ([("scans/1.png", "0.5", "train", "p1")], "the label 0.5 is a fraction or negative"),
        ([("scans/1.png", '"0,5"', "train", "p1")], "the label 0,5 is a fraction"),
        ([("scans/1.png", "\u22121", "train", "p1")], "the label \u22121 is a fraction or negative"),
        (
            [("scans/1.png", "a", "train", "\u00fc"), ("3.png", "a", "test", "u\u0308")],
            "the group '\u00fc' has images for",
        ),
        ([("scans/1.png", "a", "train", "p1"), ("S/3.png", "a", "test", "p2")], "S/3.png among them"),
        ([("scans/1.png", "", "train", "p1")], "no label"),
        ([("scans/1.png", "mel", "fold1", "p1")], "the split 'fold1' is none of"),
        ([("scans/1.png", "mel", "train", "")], "no group"),
        ([("../x.png", "mel", "train", "p1")], "is no path below the folder"),
        ([LINES[0], ("3.png", "nv", "", "p3")], "gives 1 images a split and 1 none"),
        ([LINES[0], ("3.png", "nv", "test", "p1")], "the group 'p1' has images for train and for test"),
        ([("scans/1.png", '"me\nl"', "train", "p1")], "the label 'me.nl' is not one line of text"),
        ([("scans/1.png", "a" * 200_000, "train", "p1")], "cannot be read: field larger than"),
        ([("scans/1.png", "NaN", "train", "p1")], "line 2 of .*: no label"),
        ([("scans/1.png", "\u0661", "train", "p1")], "the label \u0661 is a fraction"),
        ([LINES[0], ("3.png", "mel", "train", "nan")], "line 3 of .*: no group"),
        ([("scans/1.png", "01", "train", "p1"), ("3.png", "1", "train", "p3")], "the label 1 is written 01 before"),
        ([LINES[0], ("3.png", "nv")], "line 3 of .* has another number of columns"),
        ([], "lists no image"),
    ],
)
def test_what_is_wrong_in_a_labels_file_is_refused_with_its_line(
    lines: list[tuple[str, ...]], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidData, match=sentence):
        names(tmp_path, labelled(tmp_path, lines))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("path,label,label\n3.png,a,b\n", "has two columns 'label'"),
        ("Path,Label,Split\n3.png,a,dev\n", "the split 'dev' is none of"),
        ("path,label\n\n3.png,\n", "line 3 of .*: no label"),
        ("path,label\n3.png,caf\xe9\n", "is no text in UTF-8"),
    ],
)
def test_what_is_wrong_in_a_table_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    put(tmp_path / "3.png")
    (tmp_path / "labels.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidData, match=sentence):
        names(tmp_path, "?labels=labels.csv")


@pytest.mark.parametrize(
    "text",
    [
        "path;label;a,b,c\n3.png;mel;1\n",
        'path, label\n3.png, "mel"\n',
        'path,label,note\n3.png,mel,"two\nlines\u2028of it"\n',
        '"label"\t"path"\nmel\t3.png\n',
        "path,label\r3.png,mel \r",
        "path,label\n3.png,1_2\n",
        "sep=;\r\npath;label\r\n3.png;mel\r\n;\r\n",
    ],
)
def test_a_table_is_read_as_programs_write_it(text: str, tmp_path: Path) -> None:
    put(tmp_path / "3.png")
    (tmp_path / "labels.csv").write_text(text, newline="", encoding="utf-8")
    source = open_source(f"folder:{tmp_path}?labels=labels.csv", 2)
    assert source.class_names == ("1_2" if "1_2" in text else "mel",)
    assert len(source.train) + len(source.test) == 1


@pytest.mark.parametrize(("labels", "sentence"), [([["a"]], r"the label \['a'\] is not one name"), ([b"mel"], "")])
def test_labels_of_parquet_are_single_names(labels: list[Any], sentence: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    arrow = pytest.importorskip("pyarrow")
    put(tmp_path / "3.png")
    parquet.write_table(arrow.table({"path": ["3.png"], "label": labels}), tmp_path / "labels.parquet")
    if sentence:
        with pytest.raises(InvalidData, match=sentence):
            names(tmp_path, "?labels=labels.parquet")
    else:
        assert names(tmp_path, "?labels=labels.parquet")["classes"] == ["mel"]


@pytest.mark.parametrize(
    ("places", "labels", "remark"),
    [
        (["Cat/1.png", "cat/2.png"], "", "classes whose names look like one name: 'Cat' and 'cat'"),
        (["cat/1.png", "cat /2.png"], "", "classes whose names look like one name: 'cat' and 'cat '"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/c/1.png"], "", "no image for testing: b"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png", "test/c/1.png"], "", "no image for training: c"),
        (["a/1.png", ".b/2.png", ".x.png"], "", "left out, images too: .b, .x.png"),
        (["train/a/1.png", "test/a/2.png", "train/.b/c/1.png"], "", "left out, images too: train/.b"),
        (["a/1.png", "a/.2.png", "a/.d/2.png"], "", "left out, images too: a/.2.png, a/.d"),
        (["a/1.png", ".b/c/d/e/2.png"], "", "left out, images too: .b"),
        (["images/1.png", "labels/.x/1.png"], "", "all images are of one class, 'images'"),
        (
            ["train/images/1.png", "train/labels/.x.png", "test/images/1.png"],
            "",
            "all images are of one class, 'images'",
        ),
        (["cat/1.png", "dog/x/1.png"], "", "images of dog lie in folders in it, those of cat do not"),
        (["train/a/1.png", "val/b/1.png", "test/a/1.png"], "", "no image for training: b"),
        (["cat/train/1.png", "cat/test/2.png", "dog/train/1.png"], "", "no image for testing: dog"),
        (["a/1.png"], "path,label,split\na/1.png,x,train\n", "no image is for testing"),
        (["a/1.png", "b/1.png"], "path,label\n", "holds labels.csv, and folders are taken as classes"),
        (["a/1.png", "a/2.png"], "path,label\na/1.png,x\n", "1 images are not in labels.csv, a/2.png among them"),
        (["a/1.png"], "path,label,split\na/1.png,x,test\n", "no image is for training"),
        (["a/1.png", "a/2.png"], "path,label\na/1.png,x\na/2.png,X\n", "look like one name: 'X' and 'x'"),
        (["1/1.png", "01/2.png"], "", "look like one name: '01' and '1'"),
        (["'cat'/1.png", "cat./2.png", "cat/3.png"], "", "look like one name: \"'cat'\" and 'cat' and 'cat.'"),
        (["P 1/1.png", "P01/2.png"], "", "look like one name: 'P 1' and 'P01'"),
        (
            ["cat/1.png", "dog/2.png", "owl.zip"],
            "",
            "archives beside the class folders are not unpacked, and no classes: owl.zip",
        ),
        (["a b/1.png", "a_b/2.png", "a\u2013b/3.png"], "", "look like one name: 'a b' and 'a_b' and 'a\u2013b'"),
        (["a/1.png", "a/1_mask.png"], "", "1 images are named as masks or small copies of others, a/1_mask.png"),
        (["a/1.png", "a/thumbs/1.png"], "", "1 images are named as masks or small copies of others, a/thumbs/1.png"),
        (["a/1.png", "a/2.png"], "path,label,set\na/1.png,x,train\na/2.png,x,Test\n", "the column 'set' names sides"),
        (["a/1.png", "a/2.png"], "path,label,is_test\na/1.png,x,0\na/2.png,x,1\n", "the column 'is_test' names sides"),
        (["a/1.png", "a/2.png"], "path,label,group\na/1.png,x,1.0\na/2.png,x,1\n", "one name: '1' and '1.0'"),
        (["a/1.png", "a/2.png"], "path,label,patient_id\na/1.png,x,7\na/2.png,x,7\n", "with &group=patient_id"),
        (
            ["a/1.png", "a/2.png"],
            "path,label,group\na/1.png,x,P1\na/2.png,x,p1\n",
            "groups whose names look like one name: 'P1' and 'p1'",
        ),
        (
            [f"a/{i}.png" for i in range(12)],
            "\n".join(["path,label,group", *(f"a/{i}.png,x,scan{i}" for i in range(12)), ""]),
            "each image has a group of its own, like 'scan0': groups keep nothing together",
        ),
        (
            [f"{side}/a/p{i}_{side}.png" for i in range(2) for side in ("train", "test")],
            "",
            "names that begin alike, as p0 (and 1 more)",
        ),
    ],
)
def test_what_may_not_be_meant_is_said(places: list[str], labels: str, remark: str, tmp_path: Path) -> None:
    for place in places:
        if place.endswith(".zip"):
            (tmp_path / place).touch()
        else:
            put(tmp_path / place)
    if labels:
        (tmp_path / "labels.csv").write_text(labels)
    source = open_source(f"folder:{tmp_path}{'?labels=labels.csv' if labels.count(chr(10)) > 1 else ''}", 2)
    assert any(remark in each for each in source.remarks), source.remarks


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        (["seg_train/seg_train/cat", "seg_test/seg_test/cat"], "seg_test, seg_train, which are named as sides"),
        (["train/cat", "dev/cat"], "which are named as sides"),
        (["train/train/cat", "test/test/cat"], "test holds one folder, test/, around its images; move"),
        (["train/cat", "test/test"], "test holds one folder, test/, around its images; move"),
        (
            ["images/train/cat", "images/val/cat", "labels/train/cat"],
            "images holds the sides train, val; name it: folder:",
        ),
        (["north/train/cat", "north/test/cat", "south/cat"], "its own train and test folders in north; name one"),
        (
            ["cat/train", "cat/test", "dog"],
            "cat holds folders for training and testing, and dog/ images that lie in none",
        ),
        (["train_station", "dog"], ""),
        (["train_station", "train_track"], ""),
    ],
)
def test_sides_that_are_named_otherwise_are_no_classes(places: list[str], sentence: str, tmp_path: Path) -> None:
    for place in places:
        put(tmp_path / place / "1.png")
    if sentence:
        with pytest.raises(InvalidData, match=sentence):
            names(tmp_path)
    else:
        assert names(tmp_path)["classes"] == sorted(places)


def test_names_that_are_no_text_are_shown_by_escapes_and_no_class(tmp_path: Path) -> None:
    for name in ("new\nline.png", os.fsdecode(b"bad\xff.png"), "\u202egnp.png"):
        put(tmp_path / "cat" / name)
    source = open_source(f"folder:{tmp_path}", 2)
    shown = {part.name(i) for part in (source.train, source.test) for i in range(len(part))}
    assert shown == {"cat/new\\nline.png", "cat/bad\\udcff.png", "cat/\\u202egnp.png"}
    put(tmp_path / os.fsdecode(b"ow\xffl") / "1.png")
    with pytest.raises(InvalidData, match=r"the class folder ow\\udcffl in .* has characters that are no text"):
        names(tmp_path)


def test_links_in_a_circle_are_broken_links_wherever_they_lie(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    for place in ("", "cat"):
        (tmp_path / place / "one.png").symlink_to("two.png")
        (tmp_path / place / "two.png").symlink_to("one.png")
    source = open_source(f"folder:{tmp_path}", 2)
    assert (source.class_names, len(source.train) + len(source.test)) == (("cat",), 1)
    assert "2 broken links: left out, no images" in source.remarks


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("\0", "has no character 0"),
        ("/cat/1.png", "an archive is unpacked first"),
        ("?group=(x)?", "finds a text without letters in cat/1.png"),
        ("?frame=\u00b2", "a frame is a number from 1"),
    ],
)
def test_a_specification_that_names_nothing_is_refused(more: str, sentence: str, tmp_path: Path) -> None:
    put(tmp_path / "cat" / "1.png")
    with pytest.raises(InvalidData, match=sentence):
        names(tmp_path, more)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("?labels=none.csv", "there is no labels file"),
        ("?labels=", "cannot use 'labels='"),
        ("?labels=a.csv&labels=b.csv", "each option once"),
        ("?frame=0", "a frame is a number from 1"),
        ("?labels=pipe.csv", "is no regular file"),
        ("?labels=labels.csv&group=camera", "has no column 'camera'; it has path, label"),
    ],
)
def test_options_that_cannot_be_used_are_refused(more: str, sentence: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    labelled(tmp_path, [("3.png", "nv")], columns="path,label")
    with pytest.raises(InvalidData, match=sentence):
        names(tmp_path, more)
