"""Data sets of arrays: `npz:PATH` and `package.module:factory`."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.npyio import NpzFile
from PIL import Image

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.process.parser_lock import PARSER_LOCK
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.names import alike_said, decoded, listed
from fedplcc.trainer.data.sets.doubts import brightest, dark, groups_alike
from fedplcc.trainer.data.sets.labels_file import text_of
from fedplcc.trainer.data.source import Pixels, Samples, Source
from fedplcc.trainer.factories import import_factory

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("classes", "groups_train", "groups_test")
MOST_OF_A_GROUP = 256
"""Most characters of a group's name."""

_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\x93NUM")
"""First bytes of archives, empty archives and single arrays."""


@dataclass(frozen=True, slots=True, eq=False)
class DatasetArrays:
    """Arrays that a data factory returns; an npz file holds arrays of the same names.

    Attributes:
        x_train: Images, uint8 `[N, height, width, 1 or 3]`, of any height and width.
        y_train: Labels `[N]`: whole numbers >= 0, or the names of classes.
        x_test: As `x_train`; may hold no image.
        classes: Name of each label in order; without it, label i is named `str(i)`.
        groups_train: Patient, lesion or camera of each training image, texts or whole numbers; images of a group have one
            side and one role.
    """

    x_train: Any
    y_train: Any
    x_test: Any
    y_test: Any
    classes: Any = None
    groups_train: Any = None
    groups_test: Any = None


def open_npz(path: Path) -> Source:
    """Return the data set in an npz file: `x_train`, `y_train`, `x_test`, `y_test` and perhaps those of `OPTIONAL`.

    Raises:
        InvalidData: The file cannot be read, or an array is missing or wrong.
    """
    try:
        # numpy leaves a file open that it opened itself and cannot read.
        with PARSER_LOCK, path.open("rb") as file, closing(_archive(file, path)) as archive:
            missing = [name for name in REQUIRED if name not in archive]
            if missing:
                raise InvalidData(
                    f"{path} has no array {', '.join(missing)}; it holds {', '.join(archive.files) or 'none'}"
                )
            arrays = {name: archive[name] for name in (*REQUIRED, *OPTIONAL) if name in archive}
            others = sorted({*archive.files} - {*arrays})
    except FileNotFoundError as error:
        raise InvalidData(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise InvalidData(f"{path} is a folder; name the npz file in it, or write folder:PATH") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidData(f"cannot read {path} as an npz file of plain arrays: {error}") from error
    source = source_of(DatasetArrays(**arrays), str(path))
    remarks = (f"other arrays are left alone: {listed(others)}",) if others else ()
    return replace(source, remarks=(*source.remarks, *remarks))


def _archive(file: BinaryIO, path: Path) -> NpzFile:
    if not file.read(len(_MAGIC[0])).startswith(_MAGIC):
        # numpy would take anything else for a pickle, and advise to trust it.
        raise InvalidData(f"cannot read {path} as an npz file of plain arrays; write it with numpy.savez")
    file.seek(0)
    loaded = np.load(file, allow_pickle=False)
    if not isinstance(loaded, NpzFile):
        raise InvalidData(f"{path} holds one array; npz: needs an archive with {', '.join(REQUIRED)}")
    return loaded


def open_factory(spec: str) -> Source:
    """Return the data set that `package.module:factory()` returns: a record with the attributes of `DatasetArrays`.

    Raises:
        InvalidData: The factory cannot be imported or called, or returns something else.
    """
    factory = import_factory(spec, InvalidData)
    try:
        record = factory()
        given = {name: getattr(record, name, None) for name in (*REQUIRED, *OPTIONAL)}  # once: it may be computed
        missing = [name for name in REQUIRED if given[name] is None]
        if any(map(holds_pictures, given.values())):
            raise InvalidData("images are pictures of Pillow, whose numbers may be no colours; give uint8 arrays")
        arrays: dict[str, Any] = {**given, **{name: np.asarray(given[name]) for name in REQUIRED}}
    # A factory may raise anything, and exit; so may attributes that it computes.
    except (Exception, SystemExit) as cause:
        raise InvalidData(f"data {spec!r} cannot be made: {type(cause).__name__}: {cause}") from cause
    if missing:
        raise InvalidData(
            f"data {spec!r}: the factory must return a fedplcc.trainer.data.DatasetArrays or a record with its attributes; "
            f"{type(record).__name__} has no {', '.join(missing)}"
        )
    return source_of(DatasetArrays(**arrays), spec)


def holds_pictures(images: object) -> bool:
    """Whether images are a list of pictures of Pillow."""
    is_list = isinstance(images, list | tuple) or (isinstance(images, np.ndarray) and images.dtype == object)
    return is_list and any(isinstance(each, Image.Image) for each in images)  # type: ignore[attr-defined]


def source_of(arrays: DatasetArrays, origin: str) -> Source:
    """Return the arrays as a source.

    Raises:
        InvalidData: An array has a wrong rank, dtype, shape or value; the message names it and `origin`.
    """
    x_train, x_test = _images(arrays.x_train, f"x_train of {origin}"), _images(arrays.x_test, f"x_test of {origin}")
    y_train = _labels(arrays.y_train, len(x_train), f"y_train of {origin}")
    y_test = _labels(arrays.y_test, len(x_test), f"y_test of {origin}")
    given = None if arrays.classes is None else _class_names(arrays.classes, origin)
    names, (train_ids, test_ids) = _by_name(given, (y_train, y_test), origin)
    given_groups = (arrays.groups_train, arrays.groups_test)
    train_groups, test_groups = groups_of(given_groups, (len(x_train), len(x_test)), origin)
    return Source(
        names,
        _samples(x_train, train_ids, "train", train_groups),
        _samples(x_test, test_ids, "test", test_groups),
        remarks=(
            *alike_said(names),
            *groups_alike((*(train_groups or ()), *(test_groups or ()))),
            *dark(brightest(image) for side in (x_train, x_test) for image in side),
        ),
    )


def groups_of(
    given: tuple[Any, Any], numbers: tuple[int, int], origin: str
) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the group of each image of both sides; None where none are given.

    Raises:
        InvalidData: They are no groups of so many images, or one is on both sides.
    """
    if all(value is None for value in given):
        return None, None
    train, test = (
        _texts(value, number, f"groups_{side} of {origin}")
        for value, number, side in zip(given, numbers, ("train", "test"), strict=True)
    )
    both = sorted(set(train) & set(test))
    if both:
        raise InvalidData(f"{origin}: the group {both[0]!r} has images for train and for test; a group is on one side")
    return train, test


def _texts(value: Any, number: int, what: str) -> tuple[str, ...]:
    groups = np.asarray([] if value is None else value)
    if groups.shape != (number,):
        raise InvalidData(f"{what} must name the group of each of {number} images, not {list(groups.shape)}")
    if number and groups.dtype.kind not in "iuUSO":
        raise InvalidData(f"{what} must hold texts or whole numbers, not {groups.dtype}")
    texts = tuple(decoded(name if isinstance(name, str | bytes) else str(name), f"{what}:") for name in groups.tolist())
    lost = groups.dtype.kind == "O" and any(value is None or value != value for value in groups.tolist())
    wrong = "None" if lost else next((name for name in texts if not 1 <= len(name) <= MOST_OF_A_GROUP), None)
    if wrong is not None:
        raise InvalidData(f"{what}: {wrong[:20]!r} is no name of 1 to {MOST_OF_A_GROUP} characters")
    return texts


def _by_name(
    given: tuple[str, ...] | None, sides: Sequence[IntArray | list[str]], origin: str
) -> tuple[tuple[str, ...], list[IntArray]]:
    """Return the names of all classes, and the labels of each side as numbers that count in them."""
    texts = [name for side in sides if isinstance(side, list) for name in side]
    numbers = [side for side in sides if not isinstance(side, list) and len(side)]
    if texts and numbers:
        raise InvalidData(f"{origin} has names as labels on one side and numbers on the other")
    if texts:
        names = given or tuple(sorted(set(texts)))
        unknown = next((name for name in texts if name not in names), None)
        if unknown is not None:
            raise InvalidData(f"{origin} has the label {unknown!r}, but its classes are {listed(names)}")
        ids = {name: number for number, name in enumerate(names)}
        return names, [np.array([ids[str(name)] for name in side], np.int64) for side in sides]
    present = np.unique(np.concatenate([np.asarray(side, np.int64) for side in sides]))
    if given is None:
        return tuple(str(number) for number in present), [
            present.searchsorted(np.asarray(side, np.int64)).astype(np.int64) for side in sides
        ]
    if len(present) and present[-1] >= len(given):
        raise InvalidData(f"{origin} has label {present[-1]}, but classes names only {len(given)}, counted from 0")
    return given, [np.asarray(side, np.int64) for side in sides]


def _samples(images: Pixels, labels: IntArray, split: str, groups: tuple[str, ...] | None) -> Samples:
    return Samples(labels, lambda i: images[i], lambda i: f"{split} image {i}", keys=groups, groups=groups)


def _images(value: Any, what: str) -> Pixels:
    images = np.asarray(value)
    if images.dtype != np.uint8:
        raise InvalidData(f"{what} must be uint8 (0 to 255), not {images.dtype}")
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape[1:]:
        raise InvalidData(f"{what} must have the shape [N, height, width, 1 or 3], not {list(images.shape)}")
    return images


def _labels(value: Any, num_images: int, what: str) -> IntArray | list[str]:
    """Return labels as numbers, or as the names of classes."""
    labels = np.asarray(value)
    if (
        labels.shape == (num_images,)
        and num_images
        and all(isinstance(label, str | bytes) for label in labels.tolist())
    ):
        texts = {label: text_of(label, what) for label in dict.fromkeys(labels.tolist())}
        return [texts[label] for label in labels.tolist()]
    if not labels.size:
        return np.zeros(0, np.int64)
    if not np.issubdtype(labels.dtype, np.integer):
        raise InvalidData(f"{what} must hold whole numbers or names of classes, not {labels.dtype}")
    if labels.shape != (num_images,):
        raise InvalidData(f"{what} must have the shape [{num_images}], one label an image, not {list(labels.shape)}")
    if labels.min() < 0 or labels.max() > np.iinfo(np.int64).max:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise InvalidData(f"{what} holds the label {wrong}; labels are counted from 0")
    return labels.astype(np.int64)


def _class_names(value: Any, origin: str) -> tuple[str, ...]:
    names = np.asarray(value)
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise InvalidData(f"classes of {origin} must be a list of texts, not {names.dtype}{list(names.shape)}")
    texts = tuple(decoded(name, f"classes of {origin}:") for name in names.tolist())
    if len(set(texts)) < len(texts) or "" in texts:
        raise InvalidData(f"classes of {origin} {'have an empty name' if '' in texts else 'name a class twice'}")
    return texts
