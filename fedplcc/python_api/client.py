"""A client's data, given from Python.

Images that are arrays or a torch data set are written once, as an npz file beside the run that is named by its content. So
worker processes, `model map` and the same run from the command line find them, and equal images give equal bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fedplcc.runs.atomic_file import atomic_file, make_folder
from shared.errors import InvalidData

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
        classes: Names of the labels 0, 1, ...; those of the data set, else of the run's configuration.
        domain: Label of the domain; the client's name if not given.
        samples_per_class: Size of a seeded, class-balanced training subset; all images if not given.
        fraction: Share of the training images, drawn by the seed from each class alike, in place of `samples_per_class`.
        validation_per_class: Training images of a class that are set aside for validation; those of the run's
            data.validation_every if not given.
        model: The client's own kind of model, with the keys of `[model]`, where models are not shared; the run's if not
            given.
    """

    data: str | os.PathLike[str] | None = None
    train: Images | None = None
    test: Images | None = None
    classes: Sequence[str] | None = None
    domain: str | None = None
    samples_per_class: int | None = None
    fraction: float | None = None
    validation_per_class: int | None = None
    model: Mapping[str, Any] | None = None
    _known: dict[Path, str] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check that the data are named once.

        Raises:
            InvalidData: Both of `data` and `train` are given, or neither.
        """
        if (self.data is None) == (self.train is None):
            raise InvalidData("a Client has either data, a specification, or train, its images")
        if self.data is not None and (self.test is not None or self.classes is not None):
            raise InvalidData(
                "a Client with data has its test images and classes there; give train for images from Python"
            )

    def table(self, run_classes: Sequence[str], folder: Path) -> dict[str, Any]:
        """Return the client's table of a configuration, `[clients.NAME]`; writes images from Python into the folder.

        Raises:
            InvalidData: The images or labels have another form.
            StoreUnavailable: The folder cannot be written.
        """
        table: dict[str, Any] = {"data": self._specification(run_classes, folder)}
        for name in ("domain", "samples_per_class", "fraction", "validation_per_class", "model"):
            if (value := getattr(self, name)) is not None:
                table[name] = value
        return table

    def _specification(self, run_classes: Sequence[str], folder: Path) -> str:
        if isinstance(self.data, str):
            return self.data
        if self.data is not None:
            return f"folder:{os.fspath(self.data)}"
        folder = folder.absolute()
        if folder not in self._known:  # a data set may take minutes to read
            self._known[folder] = self._stored(run_classes, folder)
        return self._known[folder]

    def _stored(self, run_classes: Sequence[str], folder: Path) -> str:
        arrays: dict[str, Any] = {}
        for split, images in (("train", self.train), ("test", self.test)):
            x, y = _arrays(images, split)
            arrays |= {f"x_{split}": x, f"y_{split}": y}
        if not len(arrays["x_test"]):
            arrays["x_test"] = arrays["x_train"][:0]
        classes = self.classes if self.classes is not None else getattr(self.train, "classes", None)
        arrays["classes"] = np.array([str(name) for name in (run_classes if classes is None else classes)])
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


def _arrays(images: Images | None, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return images `[N, height, width, channels]` and labels `[N]`."""
    if images is None:
        return np.zeros((0, 1, 1, 3), np.uint8), np.zeros(0, np.int64)
    if isinstance(images, tuple):
        if len(images) != 2:
            raise InvalidData(f"{split}: give a pair of images and labels, or a data set")
        x, y = np.asarray(images[0]), np.asarray(images[1])
        if x.ndim == 3:
            x = x[..., None]
    else:
        if len(images) > MOST_IMAGES:
            raise InvalidData(f"{split}: a data set of more than {MOST_IMAGES} images; name a folder instead")
        pairs = list(_pairs(images, split))
        if len({pixels.shape for pixels, _ in pairs}) > 1:
            raise InvalidData(f"{split}: its images differ in size; resize them, or name a folder of them with data=")
        x = np.stack([pixels for pixels, _ in pairs]) if pairs else np.zeros((0, 1, 1, 3), np.uint8)
        y = np.array([label for _, label in pairs], np.int64)
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3):
        raise InvalidData(f"{split}: images are uint8 of [N, height, width, 1 or 3], not {x.dtype} of {list(x.shape)}")
    if y.shape != (len(x),) or (y.size and not np.issubdtype(y.dtype, np.integer)):
        raise InvalidData(f"{split}: labels are {len(x)} whole numbers, not {y.dtype} of {list(y.shape)}")
    return x, y.astype(np.int64)


def _pairs(images: LabelledImages, split: str) -> Iterator[tuple[npt.NDArray[np.uint8], int]]:
    for number in range(len(images)):
        try:
            picture, label = images[number]
            yield _pixels(picture), int(label)
        except InvalidData as error:
            raise InvalidData(f"{split} image {number}: {error.detail}") from error
        except (TypeError, ValueError) as error:
            raise InvalidData(f"{split} image {number} is no pair of an image and a label: {error}") from error


def _pixels(picture: Any) -> npt.NDArray[np.uint8]:
    """Return one image, `[height, width, channels]`."""
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
