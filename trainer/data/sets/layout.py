"""Layout of a folder of images: which of its folders are classes, and which hold the classes of a side.

Pure but for looking into folders; docs/data.md has the layouts as a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.names import listed
from fedplcc.trainer.data.sets.walking import folders_in, holds_images

TRAIN, TEST, VALIDATION = "train", "test", "validation"
SIDES: Mapping[str, str] = {
    **dict.fromkeys(("train", "training", "trainset", "traindata", "trainingset", "trainingdata"), TRAIN),
    **dict.fromkeys(("test", "testing", "testset", "testdata", "testingset", "testingdata"), TEST),
    **dict.fromkeys(("val", "valid", "validation", "validationset", "valset", "valdata"), VALIDATION),
}
"""The side that a folder holds, by its name in small letters and without signs."""
_LIKE_SIDES = re.compile(
    r"(?:^|[^a-z])(train(?:ing)?|test(?:ing)?|val(?:id|idation)?|dev|eval|holdout)(?:[^a-z]|$)", re.IGNORECASE
)
ONE_CLASS = "all images are of one class, {!r}: if that is no class, put those of each class in a folder of its name"
WRAPPERS = frozenset({"data", "dataset", "images", "image", "img", "imgs", "pictures", "photos"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Folders of a data set, as paths below its root.

    Attributes:
        sides: Of each side, the folder of each class, by the folder's name. Without `TRAIN`, `classes` are to be divided.
        classes: The folder of each class, where no side is given.
    """

    sides: Mapping[str, Mapping[str, Sequence[str]]]
    classes: Mapping[str, Sequence[str]]
    remarks: tuple[str, ...] = ()


def side_of(name: str) -> str | None:
    """Return the side that a folder of this name holds, if it is no class."""
    return SIDES.get(_plain(name))


def layout_of(root: Path, below: str = "") -> Layout:
    """Return the layout of the folder `below` of `root`.

    Raises:
        InvalidData: A side is missing, named twice, or has images that lie in no class; or the folder holds data sets.
        OSError: A folder cannot be read.
    """
    here = root / below
    names = folders_in(here)
    sides = _sides(here, names)
    if sides:
        return _sided(root, below, names, sides)
    return _classes(root, below, names)


def _sides(here: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the folders of each side; none where these names are classes."""
    found: dict[str, list[str]] = {}
    for name in names:
        if (side := side_of(name)) is not None:
            found.setdefault(side, []).append(name)
    named = [name for of_side in found.values() for name in of_side]
    others = [name for name in names if name not in named]
    has_classes = {name: bool(folders_in(here / name)) for name in named}
    if TEST not in found and others and not _are_sides(here, named, others, has_classes):
        return {}  # a class may be called train, and another one valid
    if named == found.get(VALIDATION) and not any(has_classes.values()):
        return {}
    return found


def _are_sides(here: Path, named: Sequence[str], others: Sequence[str], has_classes: Mapping[str, bool]) -> bool:
    if len(named) > 1 and any(has_classes.values()):
        return True
    if any(holds_images(here / name) for name in named):
        return False
    beside = {inner for name in others for inner in folders_in(here / name)}
    return any(not beside & set(folders_in(here / name)) and has_classes[name] for name in named)


def _sided(root: Path, below: str, names: Sequence[str], sides: Mapping[str, Sequence[str]]) -> Layout:
    here = root / below
    for side, folders in sides.items():
        if len(folders) > 1:
            raise InvalidData(f"{here} has two folders for {side}: {' and '.join(folders)}; leave one")
    chosen = {side: folders[0] for side, folders in sides.items()}
    remarks = []
    if TRAIN in chosen and TEST not in chosen and VALIDATION in chosen:
        chosen[TEST] = chosen.pop(VALIDATION)
        remarks.append(f"{chosen[TEST]}/ is the test set: there is no test/")
    if TRAIN not in chosen or TEST not in chosen:
        present = chosen.get(TRAIN) or chosen.get(TEST) or chosen[VALIDATION]
        raise InvalidData(f"{here} has {present}/ without {'test' if TRAIN in chosen else 'train'}/; add it")
    for name in chosen.values():
        if holds_images(here / name):
            raise InvalidData(
                f"images lie straight in {here / name}; put the images of each class in a folder of the class's name there"
            )
        filled = [each for each in folders_in(here / name) if _is_filled(here / name / each)]
        if len(filled) != 1:
            continue
        is_around = _plain(filled[0]) in WRAPPERS
        if side_of(filled[0]) == side_of(name) or (is_around and folders_in(here / name / filled[0])):
            raise InvalidData(f"{here / name} holds one folder, {filled[0]}/, around its images; move what is in it up")
        remarks += [ONE_CLASS.format(filled[0])] if is_around and ONE_CLASS.format(filled[0]) not in remarks else []
    if others := [name for name in names if name not in chosen.values()]:
        remarks.append(f"beside {', '.join(f'{name}/' for name in chosen.values())}: {listed(others)} left alone")
    return Layout(
        sides={
            side: {name: [os.path.join(below, folder, name)] for name in folders_in(here / folder)}
            for side, folder in chosen.items()
        },
        classes={},
        remarks=tuple(remarks),
    )


def _classes(root: Path, below: str, names: Sequence[str]) -> Layout:
    here = root / below
    inner = {name: folders_in(here / name) for name in names}
    straight = {name: holds_images(here / name) for name in names}
    nested = [name for name in names if inner[name] and not straight[name]]
    _check_names(here, inner, [name for name in names if inner[name] or straight[name]])
    remarks = [] if not names or not holds_images(here) else [f"images straight in {here} are of no class and left out"]
    if len(names) == 1 and nested:
        (name,) = names
        is_around = _plain(name) in {_plain(here.name), *WRAPPERS} or _sides(here / name, inner[name])
        if is_around and not below.count(os.sep) > 3:
            found = layout_of(root, os.path.join(below, name))
            remark = f"{here} holds one folder, {name}/, around the data: it is read, and not taken as one class"
            return Layout(sides=found.sides, classes=found.classes, remarks=(remark, *found.remarks))
        remarks.append(
            f"all images are of one class, {name!r}, and lie in its folders {listed(inner[name])}; "
            f"if those are the classes, name folder:{here / name}"
        )
    filled = [name for name in names if inner[name] or straight[name]]
    if sets := [name for name in nested if _holds_data_set(here / name, inner[name])]:
        where = f"each of {listed(sets)}" if sets == filled else listed(sets)
        raise InvalidData(
            f"{here} holds a data set with its own train and test folders in {where}; "
            f"name one of them: folder:{here / sets[0]}"
        )
    if divided := [name for name in filled if {side_of(each) for each in inner[name]} >= {TRAIN, TEST}]:
        for name in filled:
            if straight[name] or not {side_of(each) for each in inner[name]} & {TRAIN, TEST}:
                raise InvalidData(
                    f"{here / divided[0]} holds folders for training and testing, and {name}/ images that lie in none; "
                    "lay out all alike"
                )
        return _by_class(below, inner, remarks)
    if len(filled) == 1 and straight[filled[0]] and _plain(filled[0]) in WRAPPERS:
        remarks.append(ONE_CLASS.format(filled[0]))
    if nested and nested != filled:
        others = listed([name for name in filled if name not in nested])
        remarks.append(
            f"images of {listed(nested)} lie in folders in it, those of {others} do not: all count as its own"
        )
    if len(nested) > 1 and nested == filled:
        first = inner[nested[0]]
        if len(first) > 1 and all(inner[name] == first for name in nested):
            remarks.append(
                f"each of {listed(nested)} holds the same folders, {listed(first)}: if those are the classes, "
                f"{here} is a parent of sites, and one site is folder:{here / nested[0]}"
            )
    return Layout(sides={}, classes={name: [os.path.join(below, name)] for name in names}, remarks=tuple(remarks))


def _check_names(here: Path, inner: Mapping[str, Sequence[str]], filled: Sequence[str]) -> None:
    """Refuse folders that are no classes by their names: those of sides, and one around the sides among others."""
    sides = {name: match[1].lower() for name in filled if (match := _LIKE_SIDES.search(name))}
    if len(sides) == len(filled) and len({side_of(word) for word in sides.values()}) > 1:
        raise InvalidData(
            f"{here} holds {listed(filled)}, which are named as sides and not as classes; call them train and test, with "
            "the class folders in each"
        )
    for name in inner if len(inner) > 1 else ():
        if _plain(name) in WRAPPERS and len({side_of(each) for each in inner[name]} - {None}) > 1:
            raise InvalidData(f"{here / name} holds the sides {listed(inner[name])}; name it: folder:{here / name}")


def _is_filled(place: Path) -> bool:
    """Whether a folder holds images, or folders that may."""
    return bool(folders_in(place)) or holds_images(place)


def _holds_data_set(place: Path, inner: Sequence[str]) -> bool:
    """Whether a folder holds sides that hold class folders."""
    sides = [name for name in inner if side_of(name) is not None]
    return {side_of(name) for name in sides} >= {TRAIN, TEST} and all(folders_in(place / name) for name in sides)


def _by_class(below: str, inner: Mapping[str, Sequence[str]], remarks: Sequence[str]) -> Layout:
    """Return the layout of class folders that hold the sides: CLASS/train and CLASS/test."""
    sides: dict[str, dict[str, list[str]]] = {TRAIN: {}, TEST: {}}
    for name, folders in inner.items():
        for folder in folders:
            if (side := side_of(folder)) is not None:
                sides.setdefault(side, {}).setdefault(name, []).append(os.path.join(below, name, folder))
    others = sorted({folder for folders in inner.values() for folder in folders if side_of(folder) is None})
    more = [f"beside the folders of sides in the class folders: {listed(others)} left alone"] if others else []
    return Layout(
        sides=sides, classes={}, remarks=(*remarks, "the class folders hold folders for training and testing", *more)
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
