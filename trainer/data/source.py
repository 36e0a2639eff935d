"""Sources of images: labels are known at once, pixels are read one image at a time, so that a subset reads only itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from shared.types import IntArray

Pixels = npt.NDArray[np.uint8]
"""One image, height x width x (1 or 3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A list of labelled images whose pixels are not read yet.

    Attributes:
        labels_N: Class of each image, an index into the source's `class_names`; int64.
        read: Returns the image of a number, or None where it cannot be read.
        name: Returns the name of the image of a number, for reports.
    """

    labels_N: IntArray
    read: Callable[[int], Pixels | None]
    name: Callable[[int], str] = str

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, numbers: IntArray) -> Samples:
        """Return the samples of these numbers, in their order."""
        return Samples(
            self.labels_N[numbers], lambda i: self.read(int(numbers[i])), lambda i: self.name(int(numbers[i]))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A data set under its own class names, before any contract.

    Attributes:
        class_names: Every class that the data set declares, with images or without.
        class_noun: Noun for a class of this kind of data set, for messages: "class folder", "class".
        note: Remark that belongs into every report of results on this data; empty if there is none.
    """

    class_names: tuple[str, ...]
    train: Samples
    test: Samples
    class_noun: str = "class"
    note: str = ""


def union(sources: Sequence[Source]) -> Source:
    """Return several data sets as one, the images of each after those of the one before; classes are joined by name."""
    names = tuple(dict.fromkeys(name for source in sources for name in source.class_names))
    notes = dict.fromkeys(source.note for source in sources if source.note)
    return Source(
        class_names=names,
        train=_joined([(source.train, source.class_names) for source in sources], names),
        test=_joined([(source.test, source.class_names) for source in sources], names),
        class_noun=sources[0].class_noun,
        note="; ".join(notes),
    )


def _joined(parts: Sequence[tuple[Samples, tuple[str, ...]]], names: tuple[str, ...]) -> Samples:
    """Return the samples of several data sets in one, with labels that count in `names`."""
    ends = np.cumsum([len(samples) for samples, _ in parts])
    labels = [np.array([names.index(name) for name in own], np.int64)[samples.labels_N] for samples, own in parts]

    def found(number: int) -> tuple[Samples, int]:
        part = int(np.searchsorted(ends, number, side="right"))
        return parts[part][0], number - (int(ends[part - 1]) if part else 0)

    def read(number: int) -> Pixels | None:
        samples, place = found(number)
        return samples.read(place)

    def name(number: int) -> str:
        samples, place = found(number)
        return samples.name(place)

    return Samples(np.concatenate(labels), read, name)


def fit_image(pixels: Pixels, image_size: int) -> Pixels:
    """Return the image at `image_size` x `image_size` x 3: resized (Pillow, bilinear, antialiased), grey repeated."""
    if pixels.shape == (image_size, image_size, 3):
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    if image.size != (image_size, image_size):
        image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return np.asarray(image.convert("RGB"))
