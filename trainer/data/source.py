"""Sources of images: labels are known at once, pixels are read one image at a time, so that a subset reads only itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from PIL import Image

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.images.scaling import Pixels as Pixels
from fedplcc.trainer.data.images.scaling import Window
from fedplcc.trainer.data.subset import spread

NOTHING: IntArray = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A list of labelled images whose pixels are not read yet.

    Attributes:
        labels_N: Class of each image, an index into the source's `class_names`; int64.
        read: Returns the image of a number, or None where it cannot be read.
        name: Returns the name of the image of a number, for reports.
        why: Returns why the image of a number cannot be read.
        windowed: Returns `read`, `why` and `identity` for a window; None where pixels are 8 bits.
        keys: The name by which each image has its role, see roles.py; None where its place in the data set is its identity.
        groups: The patient, lesion or camera of each image; None where none are named.
        aside: Numbers of the images that the data set itself sets aside for validation; None where it says nothing.
        auto: Returns the window of the whole site for "auto"; None where pixels are 8 bits.
        identity: Returns what decides the pixels of the image of a number, its file's path, size and times and how it is
            read; None, or None for an image, where nothing says whether it is still the same.
    """

    labels_N: IntArray
    read: Callable[[int], Pixels | None]
    name: Callable[[int], str] = str
    why: Callable[[int], str] = field(default=lambda i: "it is damaged")
    windowed: Callable[[Window], Reader] | None = None
    keys: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    aside: IntArray | None = None
    auto: AutoWindow | None = None
    identity: Callable[[int], bytes | None] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, numbers: IntArray) -> Samples:
        """Return the samples of these numbers, in their order."""
        windowed, own = self.windowed, self.identity

        def of_window(window: Window) -> Reader:
            assert windowed is not None
            read, why, identity = windowed(window)
            return (
                lambda i: read(int(numbers[i])),
                lambda i: why(int(numbers[i])),
                None if identity is None else lambda i: identity(int(numbers[i])),
            )

        return Samples(
            self.labels_N[numbers],
            lambda i: self.read(int(numbers[i])),
            lambda i: self.name(int(numbers[i])),
            lambda i: self.why(int(numbers[i])),
            None if windowed is None else of_window,
            _taken(self.keys, numbers),
            _taken(self.groups, numbers),
            None if self.aside is None else np.flatnonzero(np.isin(numbers, self.aside)).astype(np.int64),
            self.auto,
            None if own is None else lambda i: own(int(numbers[i])),
        )

    def seen_through(self, window: Window) -> Samples:
        """Return the samples with this window, where their pixels have one."""
        if self.windowed is None or window is None:
            return self
        read, why, identity = self.windowed(window)
        return replace(self, read=read, why=why, identity=identity)


AutoWindow = Callable[[], "tuple[float, float] | None"]
"""Returns the window of a site for `data.window = "auto"`; None where every picture states its range."""
Reader = tuple[Callable[[int], Pixels | None], Callable[[int], str], Callable[[int], bytes | None] | None]


def _taken(texts: tuple[str, ...] | None, numbers: IntArray) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts[i] for i in numbers.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A data set under its own class names, before any contract.

    Attributes:
        class_names: Every class that the data set declares, with images or without.
        class_noun: Noun for a class of this kind of data set, for messages: "class folder", "class".
        note: Remark that belongs into every report of results on this data; empty if there is none.
        remarks: Sentences for the owner of the data: what was left out, and how their folders were understood.
        is_dealt: Whether other clients have the rest of it, images of the same groups among them.
        is_divided: Whether the run's `test_every` chose its test images.
    """

    class_names: tuple[str, ...]
    train: Samples
    test: Samples
    class_noun: str = "class"
    note: str = ""
    remarks: tuple[str, ...] = ()
    is_dealt: bool = False
    is_divided: bool = False

    def seen_through(self, window: Window) -> Source:
        """Return the data set with this window; see `Samples.seen_through`."""
        return replace(self, train=self.train.seen_through(window), test=self.test.seen_through(window))


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
        remarks=tuple(dict.fromkeys(remark for source in sources for remark in source.remarks)),
        is_dealt=any(source.is_dealt for source in sources),
        is_divided=any(source.is_divided for source in sources),
    )


GIVEN = "the data name their own {} images"
"""Why a rule that divides images does nothing."""


def idle_keys(source: Source, contract: DataSection, validation_per_class: int | None = None) -> dict[str, str]:
    """Return the settings that do nothing with a data set, and why; some images try the window."""
    found = dict[str, str]()
    if contract.test_every != DataSection.model_fields["test_every"].default and not source.is_divided:
        found["data.test_every"] = GIVEN.format("test")
    rules = {"data.validation_every": contract.validation_every, "validation_per_class": validation_per_class}
    in_vain = [key for key, value in rules.items() if value is not None]
    if source.train.aside is not None:
        found |= dict.fromkeys(in_vain, GIVEN.format("validation"))
    elif len(in_vain) == len(rules):
        found[in_vain[0]] = f"{in_vain[1]} goes before it"
    if contract.window is not None and not any(
        _is_seen_through(side, contract.window) for side in (source.train, source.test)
    ):
        found["data.window"] = "the pictures that were looked at state their range"
    return found


def _is_seen_through(samples: Samples, window: Window) -> bool:
    """Whether a window changes one of a few images."""
    seen = samples.seen_through(window)
    numbers = [] if seen is samples else spread(len(samples)).tolist()
    pairs = ((samples.read(i), seen.read(i)) for i in numbers)
    return any(
        one is not other and (one is None or other is None or not np.array_equal(one, other)) for one, other in pairs
    )


def _joined(parts: Sequence[tuple[Samples, tuple[str, ...]]], names: tuple[str, ...]) -> Samples:
    """Return the samples of several data sets in one, with labels that count in `names`."""
    ends = np.cumsum([len(samples) for samples, _ in parts])
    labels = [np.array([names.index(name) for name in own], np.int64)[samples.labels_N] for samples, own in parts]

    def found(number: int) -> tuple[int, int]:
        part = int(np.searchsorted(ends, number, side="right"))
        return part, number - (int(ends[part - 1]) if part else 0)

    def readers(of_part: Sequence[Reader]) -> Reader:
        def read(number: int) -> Pixels | None:
            part, place = found(number)
            return of_part[part][0](place)

        def why(number: int) -> str:
            part, place = found(number)
            return of_part[part][1](place)

        def identity(number: int) -> bytes | None:
            part, place = found(number)
            own = of_part[part][2]
            return None if own is None else own(place)

        return read, why, identity if all(each[2] is not None for each in of_part) else None

    def windowed(window: Window) -> Reader:
        seen = [samples.seen_through(window) for samples, _ in parts]
        return readers([(samples.read, samples.why, samples.identity) for samples in seen])

    def name(number: int) -> str:
        part, place = found(number)
        return parts[part][0].name(place)

    read, why, identity = readers([(samples.read, samples.why, samples.identity) for samples, _ in parts])
    starts = [0, *ends.tolist()]
    aside = [
        samples.aside + start for (samples, _), start in zip(parts, starts, strict=False) if samples.aside is not None
    ]
    return Samples(
        np.concatenate(labels),
        read,
        name,
        why,
        windowed,
        _all_of([samples.keys for samples, _ in parts]),
        _all_of([samples.groups for samples, _ in parts]),
        np.concatenate(aside) if aside else None,
        identity=identity,
    )


def _all_of(texts: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the texts of all parts one after another; None where a part has none."""
    known = [each for each in texts if each is not None]
    return tuple(text for each in known for text in each) if len(known) == len(texts) else None


def fit_image(pixels: Pixels, image_size: int) -> Pixels:
    """Return the image at `image_size` x `image_size` x 3: resized (Pillow, bilinear, antialiased), grey repeated."""
    if pixels.shape == (image_size, image_size, 3):
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    if image.size != (image_size, image_size):
        image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return np.asarray(image.convert("RGB"))
