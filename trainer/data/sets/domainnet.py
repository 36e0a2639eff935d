"""`domainnet:DOMAIN:PATH` and `domainnet10:DOMAIN:PATH`: DomainNet's six domains, with all 345 classes or the usual ten.

PATH holds a folder of class folders for each domain, as the published archives unpack:
`clipart/zebra/clipart_345_000001.jpg`. The published lists `clipart_train.txt` and `clipart_test.txt` divide a domain where
they are there, in PATH itself or in its folder `splits`, `lists` or that of the domain; a line is a path below PATH, a space
and a number. Without them each image has its role by its name, see roles.py. A domain has up to 175,000 images: none is
opened here, and only the first of a list is checked to exist.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.sets.folder import SPLITS, class_files, divided, file_samples, folder_source, reading
from fedplcc.trainer.data.source import Samples, Source

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")

TEN_CLASSES = (
    "bird",
    "feather",
    "headphones",
    "ice_cream",
    "teapot",
    "tiger",
    "whale",
    "windmill",
    "wine_glass",
    "zebra",
)
"""The classes of `domainnet10`."""


def open_domainnet(domain: str, root: Path, test_every: int, classes: tuple[str, ...] | None = None) -> Source:
    """Return one domain of DomainNet.

    Args:
        test_every: For a copy without lists.
        classes: Names of the classes; all classes of the domain if None.

    Raises:
        InvalidData: The folder cannot be read, has no folder of the domain or only one of the lists, or a list is damaged.
    """
    with reading(root):
        if not (root / domain).is_dir():
            raise InvalidData(f"{root} has no folder {domain}/; unpack {domain}.zip there")
    lists = _lists(domain, root)
    if lists is not None:
        return _listed(lists, root, classes)
    with reading(root):
        train, test = divided(class_files(root, domain, names=classes), domain, test_every)
    if not train:
        raise InvalidData(f"{root / domain} holds no class folders of DomainNet; unpack {domain}.zip in {root}")
    return folder_source(root, classes or tuple(sorted(train)), train, test)


def _lists(domain: str, root: Path) -> tuple[Path, Path] | None:
    """Return the lists of training and test images; None where there are none."""
    for folder in (root, root / "splits", root / "lists", root / domain):
        train, test = (folder / f"{domain}_{split}.txt" for split in SPLITS)
        if train.is_file() and test.is_file():
            return train, test
        if train.is_file() or test.is_file():
            here, gone = (train, test) if train.is_file() else (test, train)
            raise InvalidData(f"{folder} has {here.name} without {gone.name}; add it, or remove both")
    return None


def _listed(lists: tuple[Path, Path], root: Path, classes: tuple[str, ...] | None) -> Source:
    train, test = (_entries(path, classes) for path in lists)
    if not train and not test:
        raise InvalidData(f"{lists[0]} and {lists[1].name} list no image of {', '.join(classes or ('any class',))}")
    if both := {path for path, _ in train} & {path for path, _ in test}:
        raise InvalidData(f"{lists[0]} and {lists[1].name} both list {min(both)}; an image is on one side")
    first = (train or test)[0][0]
    if not (root / first).is_file():
        raise InvalidData(f"{lists[0].parent} lists {first}, which is not in {root}; unpack the domain's archive there")
    names = classes or tuple(sorted({name for side in (train, test) for _, name in side}))
    ids = {name: i for i, name in enumerate(names)}

    def samples(side: list[tuple[str, str]]) -> Samples:
        return file_samples(root, [path for path, _ in side], np.array([ids[name] for _, name in side], np.int64))

    return Source(names, samples(train), samples(test), class_noun="class folder")


def _entries(path: Path, classes: Collection[str] | None) -> list[tuple[str, str]]:
    """Return path and class of each line; the class is the folder's name, not the number."""
    found = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                image = line.rpartition(" ")[0].strip()
                name = PurePosixPath(image).parent.name
                if not name:
                    if not line.strip():
                        continue
                    raise InvalidData(f"line {number} of {path} is not a path DOMAIN/CLASS/FILE, a space and a number")
                if classes is None or name in classes:
                    found.append((image, name))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    return found
