"""`folder:PATH`: one folder for each class, under `train/` and `test/`, or without those divided by sorted path."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from shared.errors import InvalidData
from shared.types import IntArray
from trainer.data.source import Pixels, Samples, Source

SPLITS = ("train", "test")

ClassFiles = dict[str, list[str]]
"""The files of each class, as paths below the data set's folder, sorted by their path within the class folder."""


def open_folder(root: Path, test_every: int, splits: tuple[str, str] = SPLITS) -> Source:
    """Return the images under `root`, without opening any of them.

    With both `train/` and `test/`, those hold the class folders and anything beside them is ignored. Otherwise `root`
    holds the class folders, and of each class every `test_every`-th file by sorted path is for testing. Files in folders
    within a class folder belong to the class. Names that begin with a dot are ignored.

    Args:
        root: The data set's folder.
        test_every: For a folder without split folders.
        splits: Names of the split folders.

    Raises:
        InvalidData: `root` cannot be read, holds only one of `train/` and `test/`, or holds no folder.
    """
    with reading(root):
        present = [split for split in splits if (root / split).is_dir()]
        if len(present) == 1:
            absent = splits[1 - splits.index(present[0])]
            raise InvalidData(f"{root} has {present[0]}/ without {absent}/; add it")
        if present:
            train, test = (class_files(root, split) for split in splits)
        else:
            train, test = divided(class_files(root), test_every)
    if not train and not test:
        raise InvalidData(
            f"{root} holds no class folders; put the images of each class in a folder of the class's name"
        )
    return folder_source(root, tuple(sorted({*train, *test})), train, test)


def open_unlabelled(root: Path) -> Samples | None:
    """Return the images of a folder without folders in it, sorted by name, as samples of one class.

    Names that begin with a dot are ignored. None where there are folders, or no files.

    Raises:
        InvalidData: `root` cannot be read.
    """
    with reading(root), os.scandir(root) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".")]
        if not seen or any(entry.is_dir() for entry in seen):
            return None
        names = sorted(entry.name for entry in seen)
    return file_samples(root, names, np.zeros(len(names), np.int64))


@contextmanager
def reading(root: Path) -> Iterator[None]:
    """Turn errors of the file system into one message.

    Raises:
        InvalidData: Instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InvalidData(f"cannot read the folder {error.filename or root}: {error.strerror or error}") from error


def class_files(root: Path, below: str = "", names: Collection[str] | None = None) -> ClassFiles:
    """Return the files of the class folders in the folder `below` of `root`: of those with the given names, or of all."""
    with os.scandir(root / below) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    return {name: _files(root, os.path.join(below, name)) for name in folders if names is None or name in names}


def _files(root: Path, below: str) -> list[str]:
    found: list[str] = []
    for parent, folders, files in os.walk(root / below, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        place = os.path.relpath(parent, root)
        found += [os.path.join(place, name) for name in files if not name.startswith(".")]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error


def divided(classes: ClassFiles, test_every: int) -> tuple[ClassFiles, ClassFiles]:
    """Return the training and the test files, where every `test_every`-th file of a class is for testing."""
    train = {name: [path for i, path in enumerate(paths, 1) if i % test_every] for name, paths in classes.items()}
    test = {name: paths[test_every - 1 :: test_every] for name, paths in classes.items()}
    return train, test


def folder_source(root: Path, names: Sequence[str], train: ClassFiles, test: ClassFiles) -> Source:
    """Return the files as a source with these class names."""

    def samples(side: ClassFiles) -> Samples:
        paths = [side.get(name, []) for name in names]
        labels_N = np.repeat(np.arange(len(names)), [len(files) for files in paths]).astype(np.int64)
        return file_samples(root, [path for files in paths for path in files], labels_N)

    return Source(tuple(names), samples(train), samples(test), class_noun="class folder")


def file_samples(root: Path, paths: Sequence[str], labels_N: IntArray) -> Samples:
    """Return image files below `root` as samples."""
    return Samples(labels_N, lambda i: read_image(root / paths[i]), lambda i: Path(paths[i]).as_posix())


def read_image(path: Path) -> Pixels | None:
    """Return the file's first image as RGB, or None if Pillow cannot read it whole.

    16-bit grey (many scanners) keeps its upper 8 bits. An alpha channel is dropped. Images of floats have no known range and
    count as unreadable.
    """
    try:
        with Image.open(path) as image:
            if image.mode.startswith("I"):
                grey = np.clip(np.asarray(image).astype(np.int64) // 256, 0, 255).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, axis=2)
            return None if image.mode == "F" else np.asarray(image.convert("RGB"))
    # Pillow's decoders raise anything on a damaged file; one bad file must not end a run.
    except Exception:
        return None
