"""`folder:PATH`: one folder a class, under `train/` and `test/` or, without those, split by sorted name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from shared.errors import InvalidData
from shared.types import IntArray
from trainer.data.source import Pixels, Samples, Source

SPLITS = ("train", "test")


def open_folder(root: Path, test_every: int) -> Source:
    """Return the images under `root`, without opening any of them.

    With both `train/` and `test/`, those hold the class folders and anything beside them is left alone. Otherwise `root`
    holds the class folders, and of each class every `test_every`-th file by sorted path is for testing. Files in folders
    within a class folder belong to the class. Names that begin with a dot are ignored.

    Raises:
        InvalidData: `root` cannot be read, holds only one of `train/` and `test/`, or holds no folder.
    """
    try:
        splits = [split for split in SPLITS if (root / split).is_dir()]
        if len(splits) == 1:
            raise InvalidData(f"{root} has {splits[0]}/ without {'test' if splits == ['train'] else 'train'}/; add it")
        if splits:
            classes = {split: _class_files(root / split) for split in splits}
        else:
            classes = _divided(_class_files(root), test_every)
    except OSError as error:
        raise InvalidData(f"cannot read the folder {error.filename or root}: {error.strerror}") from error
    names = tuple(sorted({name for split in classes.values() for name in split}))
    if not names:
        raise InvalidData(
            f"{root} holds no class folders; put the images of each class in a folder of the class's name"
        )
    train, test = (_samples(root, names, classes[split]) for split in SPLITS)
    return Source(names, train, test, class_noun="class folder")


ClassFiles = dict[str, list[Path]]


def _class_files(root: Path) -> ClassFiles:
    """The files of each class folder, sorted by their path within it."""
    folders = [entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    return {folder.name: _files(folder) for folder in sorted(folders)}


def _files(folder: Path) -> list[Path]:
    found = []
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, name) for name in files if not name.startswith(".")]
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _raise(error: OSError) -> None:
    raise error


def _divided(classes: ClassFiles, test_every: int) -> dict[str, ClassFiles]:
    test = {name: paths[test_every - 1 :: test_every] for name, paths in classes.items()}
    train = {name: [path for i, path in enumerate(paths, 1) if i % test_every] for name, paths in classes.items()}
    return {"train": train, "test": test}


def _samples(root: Path, names: tuple[str, ...], classes: ClassFiles) -> Samples:
    paths = [path for name in names for path in classes.get(name, [])]
    labels: IntArray = np.repeat(np.arange(len(names)), [len(classes.get(name, [])) for name in names]).astype(np.int64)
    return Samples(labels, lambda i: read_image(paths[i]), lambda i: paths[i].relative_to(root).as_posix())


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
    # Pillow's decoders raise whatever their parsers meet in a damaged file; one bad file must not end a run.
    except Exception:
        return None
