"""A client's data, given from Python.

Images that are arrays or a torch data set are written once, as an npz file beside the run that is named by its content. So
worker processes, `model map` and the same run from the command line find them, and equal images give equal bytes.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedplcc.python_api.class_names import (
    Names,
    NamesAt,
    are_numbers,
    check_names,
    is_sequence,
    label_of,
    names_of,
    own_names,
)
from fedplcc.runs.atomic_file import atomic_file, make_folder
from fedplcc.shared.errors import InvalidData
from fedplcc.trainer.data.images.pixels import picture as as_rgb
from fedplcc.trainer.data.images.scaling import Unreadable, Unstated
from fedplcc.trainer.data.names import composed, listed
from fedplcc.trainer.data.sets.arrays import groups_of, holds_pictures
from fedplcc.trainer.data.sets.doubts import brightest, dark, groups_alike
from fedplcc.trainer.data.subset import spread

STORED = "fedplcc-data"
"""Folder of the written images, beside the folders of runs."""
MOST_IMAGES = 10_000_000
"""Most images of one split."""
GRID = 1e-3
"""Largest distance of a value in [0, 1] from a whole number of 255ths."""


class LabelledImages(Protocol):
    """A torch data set: a length, and pairs of an image and its label by number."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, number: int, /) -> Any:
        """Return an image and its label."""


Images: TypeAlias = "tuple[npt.ArrayLike, npt.ArrayLike] | LabelledImages"
"""Images and their labels: two arrays, or a data set of pairs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Client:
    """The data of one client, for `simulate`.

    Give either `data` or `train`. Images are uint8 of `[N, height, width, 1 or 3]`; a data set gives pictures of PIL, uint8
    arrays, or tensors `[channels, height, width]`, uint8 or as `ToTensor` makes them, in [0, 1]. Normalise nothing: the
    run's `[data]` does.

        fedplcc.Client(train=(x, y), test=(x_test, y_test))
        fedplcc.Client(train=torch_dataset, domain="ward")
        fedplcc.Client(data="folder:scans/site-1", samples_per_class=50)

    Attributes:
        data: Data specification as in a configuration, such as folder:PATH; a path is a folder.
        train: Training images.
        test: Test images; none if not given.
        classes: Names of the labels 0, 1, ..., where the data set does not name them itself. Without names a label is the
            class of its number, "0", "1", ..., or of its own name where labels are texts.
        groups: Patient, lesion or camera of each training image, texts or whole numbers: images of a group have one role.
        test_groups: As `groups`, of the test images; no group is on both sides.
        domain: Label of the domain; the client's name if not given.
        samples_per_class: Size of a seeded, class-balanced training subset; all images if not given.
        fraction: Share of the training images, drawn by the seed from each class alike, in place of `samples_per_class`.
        validation_per_class: Training images of a class that are set aside for validation; those of the run's
            data.validation_every if not given.
        evaluate_only: Whether it never trains, and the run is tested on its test images.
        model: The client's own kind of model, with the keys of `[model]`, where models are not shared; the run's if not
            given.
    """

    data: str | os.PathLike[str] | None = None
    train: Images | None = None
    test: Images | None = None
    classes: Sequence[str] | None = None
    groups: Sequence[str | int] | None = None
    test_groups: Sequence[str | int] | None = None
    domain: str | None = None
    samples_per_class: int | None = None
    fraction: float | None = None
    validation_per_class: int | None = None
    evaluate_only: bool | None = None
    model: Mapping[str, Any] | None = None
    _known: dict[Path, tuple[str | None, str]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the data are named once.

        Raises:
            InvalidData: Both of `data` and `train` are given, or neither.
        """
        if (self.data is None) == (self.train is None):
            raise InvalidData("a Client has either data, a specification, or train, its images")
        if self.data is not None and not isinstance(self.data, str | os.PathLike):
            raise InvalidData(
                f"data= is a specification or a folder, not a {type(self.data).__name__}; give train= its images"
            )
        for name in ("train", "test"):
            if isinstance(getattr(self, name), str | os.PathLike):
                raise InvalidData(f"{name}= is images; give a folder or a specification as data=")
        if self.classes is not None and (
            not is_sequence(self.classes)
            or len(set(names := [composed(str(name)) for name in self.classes])) < len(names)
        ):
            raise InvalidData(f"classes= is a list of names, each once, not {self.classes!r}")
        of_python = (self.test, self.classes, self.groups, self.test_groups)
        if self.data is not None and any(value is not None for value in of_python):
            raise InvalidData(
                "a Client with data has its test images, classes and groups there; give train for images from Python"
            )

    def table(self, run_classes: Sequence[str], folder: Path) -> dict[str, Any]:
        """Return the client's table of a configuration, `[clients.NAME]`; writes images from Python into the folder.

        Raises:
            InvalidData: The images or labels have another form.
            StoreUnavailable: The folder cannot be written.
        """
        table: dict[str, Any] = {"data": self._specification(run_classes, folder)}
        for name in ("domain", "samples_per_class", "fraction", "validation_per_class", "evaluate_only", "model"):
            if (value := getattr(self, name)) is not None:
                table[name] = value
        return table

    def _specification(self, run_classes: Sequence[str], folder: Path) -> str:
        if isinstance(self.data, str):
            return self.data
        if self.data is not None:
            return f"folder:{os.fspath(self.data)}"
        folder, glance = folder.absolute(), self._glance()
        known = self._known.get(folder)
        if known is not None and known[0] in (None, glance):  # a data set may take minutes to read
            return known[1]
        spec = self._stored(run_classes, folder)
        if glance:  # of images that are others each time the first reading is kept
            self._known[folder] = glance if glance == self._glance() else None, spec
        return spec

    def _glance(self) -> str:
        """Return what tells whether data are those that were read; empty for arrays alone, which are read each time."""
        seen, sides = hashlib.sha256(), {"train": self.train, "test": self.test}
        if all(images is None or isinstance(images, tuple) for images in sides.values()):
            return ""
        for split, images in sides.items():
            if isinstance(images, tuple):
                x, labels = _arrays(images, split, self._names_at(images, split))
                seen.update(x.tobytes() + repr((x.shape, labels)).encode())
            elif images is not None:
                count = _length(images, split)
                seen.update(repr([count, *(_seen(images, i) for i in spread(count).tolist())]).encode())
        return seen.hexdigest()

    def _stored(self, run_classes: Sequence[str], folder: Path) -> str:
        arrays: dict[str, Any] = {}
        found: dict[str, list[str]] = {}
        for split, images in (("train", self.train), ("test", self.test)):
            arrays[f"x_{split}"], found[split] = _arrays(images, split, self._names_at(images, split))
        _warn_of_copies(arrays)
        for remark in dark(brightest(image) for array in arrays.values() for image in array):
            warnings.warn(remark, stacklevel=2)
        if not len(arrays["x_test"]):
            arrays["x_test"] = arrays["x_train"][:0]
        declared = [name for split in ("train", "test") for name in self._declared(split)]
        names = list(dict.fromkeys([*declared, *sorted({*found["train"], *found["test"]}, key=_in_order)]))
        if run_classes:  # else the run takes its clients' names
            check_names(names, run_classes, are_named=bool(declared) or not are_numbers(names))
        ids = {name: number for number, name in enumerate(names)}
        for split, labels in found.items():
            arrays[f"y_{split}"] = np.array([ids[name] for name in labels], np.int64)
        arrays["classes"] = np.array(names)
        sizes = (len(arrays["x_train"]), len(arrays["x_test"]))
        groups = groups_of((self.groups, self.test_groups), sizes, "the client")
        for remark in groups_alike(group for side in groups for group in side or ()):
            warnings.warn(remark, stacklevel=2)
        for split, of_side in zip(("train", "test"), groups, strict=True):
            if of_side is not None:
                arrays[f"groups_{split}"] = np.array(of_side, np.str_)
        digest = hashlib.sha256()
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        path = folder / f"{digest.hexdigest()[:32]}.npz"
        if not path.exists():
            make_folder(folder)
            with atomic_file(path) as file:
                np.savez(file, **arrays)
        return f"npz:{path}"

    def _declared(self, split: str) -> list[str]:
        """Return the classes that are named for a side, with images or without."""
        images = self.train if split == "train" else self.test
        if self.classes is not None:
            return [composed(str(name)) for name in self.classes]
        own = None if images is None or isinstance(images, tuple) else own_names(images)
        return [composed(name) for name in own or ()]

    def _names_at(self, images: Images | None, split: str) -> NamesAt:
        """Return the names of the labels of a side, by the number of an image.

        Raises:
            InvalidData: The data set has other names than `classes`, or names that cannot be told.
        """
        given = None if self.classes is None else tuple(composed(str(name)) for name in self.classes)
        if images is None or isinstance(images, tuple):
            return lambda number: given
        _length(images, split)
        try:
            names = names_of(images)
        except InvalidData as error:
            if given is not None:
                return lambda number: given
            raise InvalidData(f"{split}: {error.detail}") from error
        if given is None:
            return names
        for own in {names(number) for number in range(len(images))} - {None, given}:
            raise InvalidData(
                f"{split}: the data set names its classes {listed(own or ())}, and classes= names {listed(given)}; "
                "leave out classes=, or change the data set's own classes"
            )
        return lambda number: given


def _seen(images: LabelledImages, number: int) -> object:
    """Return what an image and its label are at this moment; what cannot be had is refused where it is read."""
    try:
        picture, label = images[number]
        return hashlib.sha256(_pixels(picture).tobytes()).digest(), label_of(label, None)
    # A data set is anyone's code.
    except Exception:
        return None


def _warn_of_copies(arrays: Mapping[str, npt.NDArray[np.uint8]]) -> None:
    """Warn of pictures that are on both sides, but for those of one colour, which are alike by chance."""
    known = {image.tobytes() for image in arrays["x_train"]}
    copies = [number for number, image in enumerate(arrays["x_test"]) if np.ptp(image) and image.tobytes() in known]
    if copies:
        number = len(arrays["x_test"])
        warnings.warn(
            f"{len(copies)} of {number} test images are training images too, test image {copies[0]} among them: "
            "the accuracy on them says nothing of new images",
            stacklevel=2,
        )


def _in_order(name: str) -> tuple[int, str]:
    """Return the place of a class among the others: numbers by value."""
    return (int(name), "") if name.isascii() and name.isdigit() else (-1, name)


def _nobody(number: int) -> Names | None:
    return None


def _arrays(images: Images | None, split: str, names_at: NamesAt = _nobody) -> tuple[npt.NDArray[np.uint8], list[str]]:
    """Return images `[N, height, width, channels]` and the class of each."""
    if images is None:
        return np.zeros((0, 1, 1, 3), np.uint8), []
    if isinstance(images, tuple) and len(images) != 2:
        raise InvalidData(f"{split}: give a pair of images and labels, or a data set")
    if isinstance(images, tuple) and holds_pictures(images[0]):  # numpy would take a palette's numbers for shades
        if len(images[0]) != len(images[1]):
            raise InvalidData(f"{split}: {len(images[0])} images have {len(images[1])} labels")
        images = list(zip(*images, strict=True))
    if isinstance(images, tuple):
        try:
            x, y = np.asarray(images[0]), np.asarray(images[1])
        except ValueError as error:  # of lists of arrays of several sizes
            raise InvalidData(
                f"{split}: images and labels are arrays; images differ in size, or labels in form"
            ) from error
        if x.ndim == 3:
            x = x[..., None]
        if y.shape != (len(x),) or (y.size and y.dtype.kind not in "iuUSO"):
            raise InvalidData(f"{split}: labels are {len(x)} whole numbers or names, not {y.dtype} of {list(y.shape)}")
        labels = [_named(label, names_at(i), f"{split} image {i}") for i, label in enumerate(y.tolist())]
    else:
        if _length(images, split) > MOST_IMAGES:
            raise InvalidData(f"{split}: a data set of more than {MOST_IMAGES} images; name a folder instead")
        pairs = list(_pairs(images, split, names_at))
        if len({pixels.shape[2] for pixels, _ in pairs}) > 1:  # some grey, some in colours
            pairs = [(np.repeat(pixels, 3 // pixels.shape[2], axis=2), label) for pixels, label in pairs]
        if len({pixels.shape for pixels, _ in pairs}) > 1:
            raise InvalidData(f"{split}: its images differ in size; resize them, or name a folder of them with data=")
        x = np.stack([pixels for pixels, _ in pairs]) if pairs else np.zeros((0, 1, 1, 3), np.uint8)
        labels = [label for _, label in pairs]
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3):
        raise InvalidData(f"{split}: images are uint8 of [N, height, width, 1 or 3], not {x.dtype} of {list(x.shape)}")
    return x, labels


def _length(images: LabelledImages, split: str) -> int:
    """Return the number of images of a data set.

    Raises:
        InvalidData: It has no length, or no numbered images.
    """
    try:
        if not hasattr(images, "__getitem__"):
            raise TypeError("it has no numbered images")
        if hasattr(images, "indices") and np.asarray(images.indices).dtype == bool:
            raise TypeError("its indices are true or false, which count as 1 and 0; give numbers of images")
        return len(images)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise InvalidData(
            f"{split} is a {type(images).__name__}, no data set with a length and numbers: {error}"
        ) from error


def _named(label: Any, names: Names | None, what: str) -> str:
    try:
        return label_of(label, names)
    except InvalidData as error:
        raise InvalidData(f"{what}: {error.detail}") from error


def _pairs(images: LabelledImages, split: str, names_at: NamesAt) -> Iterator[tuple[npt.NDArray[np.uint8], str]]:
    first = np.zeros(0, np.uint8)
    for number in range(len(images)):
        what = f"{split} image {number}"
        try:
            sample = images[number]
            if isinstance(sample, Mapping):
                raise InvalidData(f"it is a dict of {listed([*map(str, sample)])}, and no pair of an image and a label")
            picture, label = sample
            pixels = _pixels(picture)
        except InvalidData as error:
            raise InvalidData(f"{what}: {error.detail}") from error
        except (TypeError, ValueError) as error:
            raise InvalidData(f"{what} is no pair of an image and a label: {error}") from error
        # A data set is anyone's code; the traceback stays with the refusal.
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise InvalidData(f"{what} of {len(images)} cannot be had from the data set: {said}") from error
        if pixels.shape[2] not in (1, 3):
            raise InvalidData(f"{what}: images are of [height, width, 1 or 3], not {list(pixels.shape)}")
        yield pixels, _named(label, names_at(number), what)
        first = pixels if not number else first
    if len(images) and not np.array_equal(_pixels(images[0][0]), first):
        warnings.warn(
            f"{split} image 0 is another one each time that it is read: the run keeps the first reading of all images; "
            "give them as they are, and change them by the keys of [training]",
            stacklevel=2,
        )


def _pixels(picture: Any) -> npt.NDArray[np.uint8]:
    """Return one image, `[height, width, channels]`."""
    if isinstance(picture, Image.Image):
        return _of_pillow(picture)
    is_tensor = hasattr(picture, "detach")
    pixels = np.asarray(picture.detach().cpu() if is_tensor else picture)
    if is_tensor and pixels.ndim == 3:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype.kind == "f":
        scaled = pixels.astype(np.float64) * 255.0
        whole = np.rint(scaled)
        is_on_grid = np.abs(scaled - whole).max(initial=0.0) <= 255 * GRID
        if not (is_on_grid and whole.min(initial=0) >= 0 and whole.max(initial=0) <= 255):
            raise InvalidData(
                "its values are no 255ths from 0 to 1; give the images as they are, without normalisation"
            )
        pixels = whole.astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise InvalidData(f"it is {pixels.dtype} of {list(pixels.shape)}, no image of 8 bits")
    found: npt.NDArray[np.uint8] = pixels
    return found


def _of_pillow(image: Image.Image) -> npt.NDArray[np.uint8]:
    is_grey = image.mode == "L" and "transparency" not in image.info
    try:
        pixels = as_rgb(image)
    except Unstated as error:
        raise InvalidData(f"it is a picture of mode {image.mode} that states no range; convert it to 8 bits") from error
    except Unreadable as error:
        raise InvalidData(str(error)) from error
    return pixels[:, :, :1] if is_grey else pixels
