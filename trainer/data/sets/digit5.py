"""`digit5:DOMAIN:PATH`: one of the five domains of Digit-Five, in the layouts of its usual copies.

The first of these that exists for the domain is read:

1. MATLAB files directly in PATH: `mnist_data.mat`, `mnistm_with_label.mat`, `usps_28x28.mat`, `svhn_train_32x32.mat` with
   `svhn_test_32x32.mat`, `synth_train_32x32.mat` with `synth_test_32x32.mat`, or `syn_number.mat`.
2. `DOMAIN.npz` in PATH, as `npz:` reads it; for synth also `synth_substitute.npz`, noted as not original.
3. A folder of the domain in PATH, whose class folders `0` to `9` lie under `train/` and `test/`, under `imgs_train/` and
   `imgs_valid/`, or directly in it; or whose folders `train_images/` and `test_images/` hold files `NUMBER_LABEL.EXTENSION`.

Pickles are refused: opening one runs code that its maker chose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.sets.arrays import open_npz
from fedplcc.trainer.data.sets.digits import CLASS_NAMES
from fedplcc.trainer.data.sets.folder import SPLITS, file_samples, open_folder, reading
from fedplcc.trainer.data.source import Pixels, Samples, Source

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Mat:
    """Place of one split of a domain in MATLAB files.

    Attributes:
        labels: Name of the labels: digits, digits with 10 for 0, or ten columns of which one is 1.
    """

    file: str
    images: Keys
    labels: str


@dataclass(frozen=True, slots=True)
class _Domain:
    """Names under which copies keep a domain.

    Attributes:
        mats: Pairs of a training and a test split; the first whose files are there is read.
        folders: Names of its folder without capitals and signs.
    """

    mats: tuple[tuple[_Mat, _Mat], ...]
    npz: Keys
    folders: Keys


def _x_and_y(train: str, test: str) -> tuple[_Mat, _Mat]:
    return _Mat(train, ("X",), "y"), _Mat(test, ("X",), "y")


_USPS = "usps_28x28.mat"
DOMAINS: Mapping[str, _Domain] = MappingProxyType(
    {
        "mnist": _Domain(
            (
                (
                    _Mat("mnist_data.mat", ("train_28", "train_32"), "label_train"),
                    _Mat("mnist_data.mat", ("test_28", "test_32"), "label_test"),
                ),
            ),
            ("mnist.npz",),
            ("mnist",),
        ),
        "usps": _Domain(((_Mat(_USPS, (), ""), _Mat(_USPS, (), "")),), ("usps.npz",), ("usps",)),
        "svhn": _Domain((_x_and_y("svhn_train_32x32.mat", "svhn_test_32x32.mat"),), ("svhn.npz",), ("svhn",)),
        "synth": _Domain(
            (
                _x_and_y("synth_train_32x32.mat", "synth_test_32x32.mat"),
                (
                    _Mat("syn_number.mat", ("train_data",), "train_label"),
                    _Mat("syn_number.mat", ("test_data",), "test_label"),
                ),
            ),
            ("synth.npz", "synth_substitute.npz"),
            ("synth", "syn", "synthdigits", "syntheticdigits"),
        ),
        "mnistm": _Domain(
            (
                (
                    _Mat("mnistm_with_label.mat", ("train",), "label_train"),
                    _Mat("mnistm_with_label.mat", ("test",), "label_test"),
                ),
            ),
            ("mnistm.npz",),
            ("mnistm",),
        ),
    }
)


def open_digit5(domain: str, root: Path, test_every: int) -> Source:
    """Return one domain of Digit-Five.

    Args:
        test_every: For class folders without split folders.

    Raises:
        InvalidData: The folder holds nothing of the domain, or only pickles, or what it holds is damaged.
    """
    known = DOMAINS[domain]
    with reading(root):
        names = sorted(entry.name for entry in root.iterdir())
    for train, test in known.mats:
        if train.file in names and test.file in names:
            return _open_mats(root, train, test)
    for name in known.npz:
        if name in names:
            source = open_npz(root / name)
            return replace(source, note=_SUBSTITUTE) if "substitute" in name else source
    folders = [name for name in names if _plain(name) in known.folders]
    for name in folders:
        with reading(root / name):
            found = _open_folder(root / name, test_every) if (root / name).is_dir() else None
        if found is not None:
            return found
    siblings = (root / name for name in names if _plain(name).startswith(known.folders) and name.endswith(PICKLES))
    within = (path for name in folders for path in sorted((root / name).rglob("*.pkl")))
    pickled = next(chain(siblings, within), None)
    if pickled is not None:
        raise InvalidData(
            f"{pickled} is a pickle, which could run anything when it is opened, so it is not read; "
            "use a copy in .mat files, npz files or class folders"
        )
    files = [f"{train.file} with {test.file}" if train.file != test.file else train.file for train, test in known.mats]
    wanted = ", ".join((*files, *known.npz))
    raise InvalidData(f"{root} holds nothing of the domain {domain!r}: neither {wanted} nor a folder {domain}/")


_SUBSTITUTE = "synth_substitute.npz: digits rendered as a stand-in, not the original SynthDigits"


PICKLES = (".pkl", ".pickle", ".pt", ".pkl.gz")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _open_mats(root: Path, train: _Mat, test: _Mat) -> Source:
    def samples(mat: _Mat, split: str) -> Samples:
        return _usps_samples(root / mat.file, split) if mat.file == _USPS else _mat_samples(root / mat.file, mat, split)

    return Source(CLASS_NAMES, samples(train, "train"), samples(test, "test"))


def _mat_samples(path: Path, mat: _Mat, split: str) -> Samples:
    """Read the labels now, and the array of images with the first image."""
    import scipy.io

    shapes = {name: shape for name, shape, _ in _parsed(path, lambda: scipy.io.whosmat(str(path)))}
    images = next((name for name in mat.images if name in shapes), None)
    if images is None or mat.labels not in shapes:
        raise InvalidData(
            f"{path} has no arrays {mat.images[0]} and {mat.labels}; it holds {', '.join(shapes) or 'none'}"
        )
    labels_N = _digits(_array(path, mat.labels), f"{mat.labels} of {path}")
    is_last = mat.images == ("X",)
    shape = shapes[images]
    shape_NHWC = (shape[-1:] + shape[:-1]) if is_last else shape
    if len(shape) not in (3, 4) or shape_NHWC[0] != len(labels_N) or shape_NHWC[3:] not in ((), (1,), (3,)):
        raise InvalidData(
            f"{images} of {path} has the shape {list(shape)}, which is not that of {len(labels_N)} images"
        )

    @cache
    def pixels() -> Pixels:
        array = _array(path, images)
        array = np.moveaxis(array, -1, 0) if is_last else array
        return _bytes(array if array.ndim == 4 else array[..., None], f"{images} of {path}")

    return Samples(labels_N, lambda i: pixels()[i], lambda i: f"{split} image {i}")


def _usps_samples(path: Path, split: str) -> Samples:
    """Read USPS: one array of two rows, training and test, each with a cell of images [N, 1, 28, 28] and one of labels."""
    cells = _array(path, "dataset")
    if cells.dtype != object or cells.shape != (2, 2):
        raise InvalidData(f"dataset of {path} is not the usual 2 x 2 cells of images and labels")
    images, labels = cells[("train", "test").index(split)]
    labels_N = _digits(labels, f"dataset of {path}")
    if images.ndim != 4 or images.shape[:2] != (len(labels_N), 1):
        raise InvalidData(
            f"dataset of {path} has images of the shape {list(images.shape)}, not [{len(labels_N)}, 1, height, width]"
        )
    pixels_NHWC = _bytes(np.moveaxis(images, 1, 3), f"dataset of {path}")
    return Samples(labels_N, lambda i: pixels_NHWC[i], lambda i: f"{split} image {i}")


def _array(path: Path, name: str) -> Any:
    import scipy.io

    arrays = _parsed(path, lambda: scipy.io.loadmat(str(path), variable_names=[name]))
    if name not in arrays:
        raise InvalidData(f"{path} has no array {name}")
    return arrays[name]


def _parsed(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    # scipy's parser raises anything on a damaged file.
    except Exception as error:
        raise InvalidData(f"cannot read {path} as a MATLAB file: {error}") from error


def _digits(labels: Any, what: str) -> IntArray:
    """Return labels as digits, given ten columns of which one is 1, or numbers where 10 may stand for 0."""
    digits: IntArray = np.asarray(labels)
    if digits.ndim == 2 and digits.shape[1] == len(CLASS_NAMES):
        digits = digits.argmax(axis=1)
    digits = digits.reshape(-1)
    if not np.issubdtype(digits.dtype, np.number) or not np.isin(digits, np.arange(11)).all():
        raise InvalidData(f"the labels in {what} are not digits")
    return digits.astype(np.int64) % len(CLASS_NAMES)


def _bytes(array: Any, what: str) -> Pixels:
    """Return pixels 0 to 255, given such numbers, or fractions 0 to 1."""
    if array.dtype == np.uint8:
        pixels: Pixels = array
        return pixels
    top = array.max(initial=0) if np.issubdtype(array.dtype, np.number) else -1
    if not 0 <= top <= 255 or array.min(initial=0) < 0:
        raise InvalidData(f"the pixels in {what} are neither 0 to 255 nor 0 to 1")
    is_fraction = np.issubdtype(array.dtype, np.floating) and top <= 1
    rounded: Pixels = np.rint(array * 255 if is_fraction else array).astype(np.uint8)
    return rounded


def _open_folder(root: Path, test_every: int) -> Source | None:
    """Return the data set in the domain's folder; None where its layout is not known."""
    if all((root / f"{split}_images").is_dir() for split in SPLITS):
        return Source(CLASS_NAMES, _labelled_files(root, "train_images"), _labelled_files(root, "test_images"))
    for splits in (SPLITS, ("imgs_train", "imgs_valid")):
        if any(_has_class_folders(root / split) for split in splits):
            return open_folder(root, test_every, splits)
    return open_folder(root, test_every) if _has_class_folders(root) else None


def _has_class_folders(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in CLASS_NAMES)


def _labelled_files(root: Path, folder: str) -> Samples:
    """Return files whose names end in their label: 000001_7.jpg."""
    paths, labels = [], []
    for name in sorted(os.listdir(root / folder)):
        match = re.fullmatch(r"[^.].*_(\d)\.\w+", name)
        if match is None:
            raise InvalidData(
                f"{root / folder / name} does not end in its label; files here are called like 000001_7.jpg"
            )
        paths.append(f"{folder}/{name}")
        labels.append(int(match[1]))
    return file_samples(root, paths, np.array(labels, np.int64))
