"""`office10:DOMAIN:PATH`: Office-Caltech10, four domains of ten classes of office things.

PATH holds a folder for each domain, `amazon`, `caltech` (or `caltech10`), `dslr` and `webcam`, directly or under `images/`;
a domain's class folders may lie under another `images/`, as in Office-31. Copies name classes in several ways; here they
always have the same ten names, so that one run fits all domains of all copies. Folders of other classes are ignored.

The split is the published one: of all images of a domain, in the order of class and file name, number i is for testing if
i mod 10 is 8 or 9. That gives the test sets of 190, 224, 30 and 58 images on which results are reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.sets.folder import class_files, file_samples, reading
from fedplcc.trainer.data.source import Source

CLASSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "back_pack": frozenset({"backpack"}),
        "bike": frozenset({"bike", "touringbike"}),
        "calculator": frozenset({"calculator"}),
        "headphones": frozenset({"headphones", "headphone"}),
        "keyboard": frozenset({"keyboard", "computerkeyboard"}),
        "laptop_computer": frozenset({"laptopcomputer", "laptop", "laptop101"}),
        "monitor": frozenset({"monitor", "computermonitor"}),
        "mouse": frozenset({"mouse", "computermouse"}),
        "mug": frozenset({"mug", "coffeemug"}),
        "projector": frozenset({"projector", "videoprojector"}),
    }
)
"""The ten classes, and their folders' names in copies, without capitals, signs and the numbers of Caltech-256."""

DOMAINS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "amazon": frozenset({"amazon"}),
        "caltech": frozenset({"caltech", "caltech10"}),
        "dslr": frozenset({"dslr"}),
        "webcam": frozenset({"webcam"}),
    }
)
"""The domains, and their folders' names in copies."""

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of image files. Other files are not counted, as in torchvision's ImageFolder: the split depends on the count."""


def open_office10(domain: str, root: Path) -> Source:
    """Return one domain of Office-Caltech10.

    Raises:
        InvalidData: The folder cannot be read, or has no folder of the domain or of one of its classes.
    """
    with reading(root):
        place = _folder_of(root, DOMAINS[domain])
        if place is None and (root / "images").is_dir():
            place = _folder_of(root / "images", DOMAINS[domain])
        if place is None:
            raise InvalidData(f"{root} has no folder {domain}/, directly or under images/")
        folders = {name: _folder_of(place, known) for name, known in CLASSES.items()}
        if not any(folders.values()) and (place / "images").is_dir():
            place = place / "images"
            folders = {name: _folder_of(place, known) for name, known in CLASSES.items()}
        missing = [name for name, folder in folders.items() if folder is None]
        if missing:
            raise InvalidData(
                f"{place} has no folder of the class {missing[0]!r}; Office-Caltech10 has all ten classes"
            )
        names = [folder.name for folder in folders.values() if folder is not None]
        files = class_files(place, names=names)
    paths, labels = [], []
    for label, name in enumerate(names):
        images = [path for path in files[name] if os.path.splitext(path)[1].lower() in IMAGE_ENDINGS]
        paths += images
        labels += [label] * len(images)
    labels_N, numbers_N = np.array(labels, np.int64), np.arange(len(labels))
    samples, is_test_N = file_samples(place, paths, labels_N), numbers_N % 10 >= 8
    return Source(
        tuple(CLASSES),
        samples.take(numbers_N[~is_test_N]),
        samples.take(numbers_N[is_test_N]),
        class_noun="class folder",
    )


def _folder_of(place: Path, known: frozenset[str]) -> Path | None:
    """Return the folder whose name, without capitals, signs and a number in front, is one of the known ones."""
    return next(
        (folder for folder in sorted(place.iterdir()) if _plain(folder.name) in known and folder.is_dir()), None
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub(r"^\d+\.", "", name.lower()))
