"""DomainNet's layout, with and without its lists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data import describe, load_dataset
from fedplcc.trainer.data.roles import TEST, has_role, key_of
from fedplcc.trainer.data.sets.domainnet import DOMAINS, TEN_CLASSES
from fedplcc.trainer.data.specs import open_source

NAMES = ("The_Eiffel_Tower", "aircraft_carrier", "tiger", "zebra")


def write(root: Path, domain: str = "clipart", each: int = 5) -> None:
    for label, name in enumerate(NAMES):
        (root / domain / name).mkdir(parents=True)
        for i in range(each):
            path = root / domain / name / f"{domain}_{label:03}_{i:06}.png"
            Image.new("L", (8, 8), 10 * label + i).save(path)


def write_lists(root: Path, folder: str = "", domain: str = "clipart") -> None:
    """The last two of five images of a class are for testing, the later classes first."""
    (root / folder).mkdir(exist_ok=True)
    for split, numbers in (("train", range(3)), ("test", range(3, 5))):
        lines = [
            f"{domain}/{name}/{domain}_{label:03}_{i:06}.png {label}\n"
            for label, name in reversed(list(enumerate(NAMES)))
            for i in numbers
        ]
        (root / folder / f"{domain}_{split}.txt").write_text("".join(lines))


@pytest.mark.parametrize("place", ["", "splits", "lists", "clipart"])
def test_the_published_lists_divide_a_domain(place: str, tmp_path: Path) -> None:
    write(tmp_path)
    write_lists(tmp_path, place)
    data = load_dataset(f"domainnet:clipart:{tmp_path}", contract=DataSection(classes=NAMES, image_size=8))
    assert data.train.images_NSS3[:, 0, 0, 0].tolist() == [30, 31, 32, 20, 21, 22, 10, 11, 12, 0, 1, 2]
    assert data.test.labels_N.tolist() == [3, 3, 2, 2, 1, 1, 0, 0]


def test_without_lists_each_image_has_its_role_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, "real")
    for every in (2, 3, 5):
        source = open_source(f"domainnet:real:{tmp_path}", every)
        for side, is_test in ((source.train, False), (source.test, True)):
            names = [Path(side.name(i)).name for i in range(len(side))]
            assert [has_role(key_of(name), TEST, every) for name in names] == [is_test] * len(names)
        assert len(source.train) + len(source.test) == 20


@pytest.mark.parametrize("has_lists", [True, False])
def test_domainnet10_has_the_usual_ten_classes_with_images_or_without(has_lists: bool, tmp_path: Path) -> None:
    write(tmp_path)
    if has_lists:
        write_lists(tmp_path)
    source = open_source(f"domainnet10:clipart:{tmp_path}", 5)
    assert source.class_names == TEN_CLASSES
    assert sorted({TEN_CLASSES[label] for label in source.train.labels_N}) == ["tiger", "zebra"]
    assert len(source.train) == (6 if has_lists else 8)


def test_no_image_is_opened_or_looked_for_to_count_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    write_lists(tmp_path)
    for path in (tmp_path / "clipart").rglob("*.png"):
        if "zebra" not in path.parts:
            path.unlink()
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("counting opens no image"))
    assert describe(f"domainnet:clipart:{tmp_path}") == dict.fromkeys(NAMES, 3)


def no_test_list(root: Path) -> None:
    (root / "clipart_test.txt").unlink()


def another_place(root: Path) -> None:
    (root / "clipart" / "zebra").rename(root / "clipart" / "horse")


def bad_line(root: Path) -> None:
    with (root / "clipart_train.txt").open("a") as file:
        file.write("\nzebra.png 3\n")


def both_lists(root: Path) -> None:
    line = (root / "clipart_train.txt").read_text().splitlines()[0]
    with (root / "clipart_test.txt").open("a") as file:
        file.write(line)


def no_text(root: Path) -> None:
    (root / "clipart_train.txt").write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (no_test_list, r"has clipart_train.txt without clipart_test.txt; add it, or remove both"),
        (another_place, r"lists clipart/zebra/\S+, which is not in \S+; unpack the domain's archive there"),
        (bad_line, r"line 14 of \S+clipart_train.txt is not a path DOMAIN/CLASS/FILE, a space and a number"),
        (both_lists, r"clipart_train.txt and clipart_test.txt both list clipart/zebra/\S+; an image is on one side"),
        (no_text, r"cannot read \S+clipart_train.txt"),
    ],
)
def test_damaged_lists_are_explained(change: Callable[..., Any], sentence: str, tmp_path: Path) -> None:
    write(tmp_path)
    write_lists(tmp_path)
    change(tmp_path)
    with pytest.raises(InvalidData, match=sentence):
        open_source(f"domainnet:clipart:{tmp_path}", 5)


def test_a_copy_that_lacks_a_domain_says_which_archive_to_unpack(tmp_path: Path) -> None:
    with pytest.raises(InvalidData, match=r"has no folder sketch/; unpack sketch.zip there"):
        open_source(f"domainnet:sketch:{tmp_path}", 5)
    (tmp_path / "sketch").mkdir()
    with pytest.raises(InvalidData, match=r"sketch holds no class folders of DomainNet; unpack sketch.zip in"):
        open_source(f"domainnet10:sketch:{tmp_path}", 5)
    with pytest.raises(InvalidData, match="unknown domain of domainnet10 'cliparts'; did you mean 'clipart'"):
        open_source(f"domainnet10:cliparts:{tmp_path}", 5)
    assert len(DOMAINS) == 6


def test_listed_images_that_are_gone_count_as_unreadable(tmp_path: Path) -> None:
    write(tmp_path)
    write_lists(tmp_path)
    (tmp_path / "clipart/tiger/clipart_002_000000.png").unlink()
    data = load_dataset(f"domainnet:clipart:{tmp_path}", contract=DataSection(classes=NAMES, image_size=8))
    assert data.unreadable == ("clipart/tiger/clipart_002_000000.png",)


def test_lists_that_windows_wrote_are_as_others(tmp_path: Path) -> None:
    write(tmp_path)
    write_lists(tmp_path)
    for split in ("train", "test"):
        path = tmp_path / f"clipart_{split}.txt"
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    data = load_dataset(f"domainnet:clipart:{tmp_path}", contract=DataSection(classes=NAMES, image_size=8))
    assert (len(data.train), len(data.test), data.unreadable) == (12, 8, ())


def test_lists_without_an_image_of_the_classes_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    for split in ("train", "test"):
        (tmp_path / f"clipart_{split}.txt").write_text("clipart/aircraft_carrier/clipart_001_000000.png 1\n")
    with pytest.raises(InvalidData, match=r"clipart_test\.txt list no image of bird, feather"):
        open_source(f"domainnet10:clipart:{tmp_path}", 5)
    for split in ("train", "test"):
        (tmp_path / f"clipart_{split}.txt").write_text("\n")
    with pytest.raises(InvalidData, match="list no image of any class"):
        open_source(f"domainnet:clipart:{tmp_path}", 5)
