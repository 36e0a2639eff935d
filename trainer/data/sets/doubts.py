"""Signs that images, groups or columns of a table are not what they are taken for, as sentences for the owner. Pure."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.scoring.scores import FEW_IMAGES
from fedplcc.trainer.data.names import alike, listed, printable
from fedplcc.trainer.data.sets.layout import side_of

DIM = 64
"""Number of 255 that some pixel of a data set reaches, if its numbers are not of a smaller range."""
_WORDS = (
    r"masks?|seg|segmentations?|superpixels?|gt|ground_?truth|labels?|annotations?|overlays?|heatmaps?|thumb(?:nail)?s?"
)
_BETWEEN = " _.-"
_COMPANION = re.compile(rf"[{_BETWEEN}](?:{_WORDS})[{_BETWEEN}]?[0-9]*\Z", re.IGNORECASE)
_COMPANIONS = re.compile(_WORDS, re.IGNORECASE)
_SIDES = re.compile(
    r"(is[ _-]?)?(train(ing)?|test(ing)?|val(id(ation)?)?)|(cv[ _-]?)?fold|sub ?set|partition", re.IGNORECASE
)
_FAMILY = re.compile(r"(.*?\d)[_ .-].", re.DOTALL)
Traits = tuple[str, ...]
"""What an image is besides what it shows: grey or in colour, its size, its kind of file."""
_MOST, _FEW = 0.9, 0.1
"""Shares of a class's images, and of all others, that have what gives the class away."""
_PERSON = re.compile(r"patient|lesion|subject|person|study|case|camera|scanner", re.IGNORECASE)


def companions(paths: Sequence[str]) -> list[str]:
    """Return a sentence on images that may be masks or small copies of others, by their names or their folders'."""
    stems = [os.path.splitext(path)[0] for path in paths]
    known = set(stems)

    @cache
    def is_for_companions(folder: str) -> bool:
        below = folder.split(os.sep)[1:]  # the first folder is a class or a side
        return any(_COMPANIONS.fullmatch(each) for each in below)

    def is_companion(stem: str) -> bool:
        folder, _, name = stem.rpartition(os.sep)
        match = _COMPANION.search(name)
        of = "" if match is None else name[: match.start()].rstrip(_BETWEEN)
        return (bool(of) and os.path.join(folder, of) in known) or is_for_companions(folder)

    found = [path for path, stem in zip(paths, stems, strict=True) if is_companion(stem)]
    if not found or len(found) == len(paths):
        return []
    return [
        f"{len(found)} images are named as masks or small copies of others, {printable(min(found))} among them: "
        "they count as images; take them away if they are none"
    ]


def families(train: Iterable[str], test: Iterable[str], num_classes: int) -> list[str]:
    """Return a sentence on names that begin alike on both sides, as those of one patient, or of copies of an image, do."""
    of_train, of_test = ({match[1] for path in side if (match := _FAMILY.match(_stem(path)))} for side in (train, test))
    both = of_train & of_test
    if len(both) < 2 * num_classes or 2 * len(both) < len(of_train | of_test):
        return []
    return [
        f"images on both sides have names that begin alike, as {printable(min(both))} (and {len(both) - 1} more): if "
        r"that is a patient, or an image that others were made from, keep them together by group=([^/]*?\d)[_ .-]"
    ]


def _stem(path: str) -> str:
    """Return a file's name without its ending; empty where it has none."""
    return path.rpartition("/")[2].rpartition(".")[0]


def groups_alike(groups: Iterable[str]) -> list[str]:
    """Return a sentence on groups that differ in writing alone, and on those that keep no two images together."""
    named = list(groups)
    kinds = alike(sorted(set(named)))
    said = [f"groups whose names look like one name: {listed(kinds)}; write each in one way"] if kinds else []
    if len(named) > FEW_IMAGES and len(set(named)) == len(named):
        said.append(f"each image has a group of its own, like {printable(named[0])!r}: groups keep nothing together")
    return said


def brightest(image: npt.NDArray[np.uint8]) -> int:
    """Return the largest number of an image; 0 of one of a single colour."""
    return int(image.max()) if np.ptp(image) else 0


def dark(largest: Iterable[int]) -> list[str]:
    """Return a sentence on images of which none has a large number, of the largest number of each."""
    top = 0
    for each in largest:
        top = max(top, each)
        if top >= DIM:
            return []
    return (
        [f"no number in the images is above {top} of 255: all are nearly black; scale them to 0 to 255"] if top else []
    )


def given_away(traits: Mapping[str, Sequence[Traits]]) -> list[str]:
    """Return a sentence on each class whose images have what those of the others have not, whatever they show."""
    known = [each for of_class in traits.values() for each in of_class]
    said = []
    for name, of_class in traits.items():
        others = len(known) - len(of_class)
        if min(len(of_class), others) < FEW_IMAGES:
            continue
        for number, column in enumerate(zip(*of_class, strict=True)):
            trait, count = Counter(column).most_common(1)[0]
            elsewhere = sum(each[number] == trait for each in known) - count
            if trait and count >= _MOST * len(of_class) and elsewhere <= _FEW * others:
                said.append(
                    f"{count} of the {len(of_class)} images of {name} are {trait}, and {elsewhere} of the {others} others: "
                    "a model may learn that in place of what they show; make the images of all classes alike in it"
                )
    return said


def columns_left(rows: Sequence[Mapping[str, Any]], known: Sequence[str]) -> list[str]:
    """Return a sentence on each column that is left alone and may give sides or groups."""
    said = []
    for column in (name for name in rows[0] if name not in known):
        values = [value for row in rows if (value := str(row[column]).strip())]
        kinds = set(values)
        if kinds and (_SIDES.fullmatch(column) or all(side_of(value) for value in kinds)):
            said.append(f"the column {column!r} names sides and is left alone: call it split to divide images by it")
        elif "group" not in known and _PERSON.search(column) and len(kinds) < len(values):
            said.append(
                f"the column {column!r} is left alone, and has values of several images: with &group={column} nobody's "
                "images are on both sides"
            )
    return said
