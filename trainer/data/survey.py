"""Survey of a data set for people: classes, counts, image sizes and files that cannot be read."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from fedplcc.trainer.data.first_look import RANGE, counted, few_images, lost_classes
from fedplcc.trainer.data.images.colours import remarks_on_pictures
from fedplcc.trainer.data.images.scaling import Window
from fedplcc.trainer.data.loading import DEFAULT_TEST_EVERY
from fedplcc.trainer.data.names import listed
from fedplcc.trainer.data.record import digest_of
from fedplcc.trainer.data.sets.doubts import DIM, Traits, brightest, dark, given_away
from fedplcc.trainer.data.source import GIVEN, Pixels, Samples
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.data.subset import NUM_LOOKED_AT, spread

DARK = 8.0
"""Mean brightness below which an image is nearly black."""
MOST_COPIES = 20
"""Most groups of copies that are printed."""
STEP = 8
"""One pixel in so many of each row and column tells an image's brightness, and whether it may be a copy."""
SIDE = 12
"""Pixels of a side of a small picture, by which another encoding or size of one picture is found."""
ALIKE = 3.0
"""Root of the mean squared difference of the small pictures of two encodings of one, at most; of 255, and not above a tenth
of a picture's standard deviation."""
CONTRAST = 8.0
"""Standard deviation of a small picture below which it shows too little to tell two pictures apart."""
MOST_PAIRS = 1 << 31
"""Most pairs of small pictures that are compared."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
Place = tuple[int, int]
"""An image: its side, 0 for training and 1 for testing, and its number."""
Size = tuple[int, int]
"""Height and width in pixels."""
OnRead = Callable[[int, int], None]
"""Called with the number of images that have been read and of those to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A data set in numbers.

    Attributes:
        train: Training images of each class; files are counted, whether they can be read or not.
        smallest: Size of the image with the smallest side among those that were read; None if none could be read.
        largest: Size of the image whose smaller side is the largest.
        is_whole: Whether every image was read.
        note: Remark that belongs into every report of results on this data; empty if there is none.
        reasons: Number of the images that could not be read, by the reason.
        remarks: Sentences for the owner: what was left out, and how folders were understood.
        brightness: Lowest, mean and highest of the images' mean brightness, 0 to 255; None where none was read.
        num_dark: Number of images that are nearly black.
        num_bright: Number of images that are nearly white.
        copies: Groups of images of the same pixels that are on two sides or in two classes, by name.
    """

    spec: str
    classes: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    smallest: Size | None
    largest: Size | None
    num_looked_at: int
    unreadable: tuple[str, ...]
    is_whole: bool
    note: str
    reasons: Mapping[str, int]
    remarks: tuple[str, ...]
    brightness: tuple[float, float, float] | None
    num_dark: int
    num_bright: int
    copies: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Return the survey for people."""
        rows = [("class", "train", "test")]
        rows += [(name, str(n), str(m)) for name, n, m in zip(self.classes, self.train, self.test, strict=True)]
        rows.append(("all", str(sum(self.train)), str(sum(self.test))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [f"{name:<{widths[0]}}  {n:>{widths[1]}}  {m:>{widths[2]}}" for name, n, m in rows]
        note = [f"note: {text}" for text in (self.note, *self.remarks) if text]
        contract = f"for the run's [data]: classes = {json.dumps(self.classes, ensure_ascii=False)}"
        return [self.spec, *table, *self._about_images(), *note, contract]

    def _about_images(self) -> list[str]:
        looked = "all of them read" if self.is_whole else f"{self.num_looked_at} of them looked at"
        if self.smallest is None or self.largest is None:
            sizes = "none that can be read"
        elif self.smallest == self.largest:
            sizes = f"{_text(self.smallest)} pixels"
        else:
            sizes = f"{_text(self.smallest)} to {_text(self.largest)} pixels"
        lines = [f"images: {sizes}, height x width ({looked})"]
        if self.unreadable:
            lines += [f"cannot be read: {len(self.unreadable)}", *(f"  {name}" for name in self.unreadable)]
            lines += [f"  {count} of them: {reason}" for reason, count in sorted(self.reasons.items())]
        if self.brightness is not None:
            low, mean, high = self.brightness
            dark = (
                f"; nearly black: {self.num_dark}, nearly white: {self.num_bright}"
                if self.num_dark + self.num_bright
                else ""
            )
            lines.append(f"mean brightness of an image: {low:.0f} to {high:.0f}, on average {mean:.0f} of 255{dark}")
        if self.copies:
            lines.append(f"the same picture on two sides or in two classes: {len(self.copies)}")
            lines += [f"  {' = '.join(names)}" for names in self.copies[:MOST_COPIES]]
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the survey for programs."""
        return {
            "data": self.spec,
            "classes": [
                {"name": name, "train": n, "test": m}
                for name, n, m in zip(self.classes, self.train, self.test, strict=True)
            ],
            "train": sum(self.train),
            "test": sum(self.test),
            "smallest": self.smallest,
            "largest": self.largest,
            "num_looked_at": self.num_looked_at,
            "unreadable": list(self.unreadable),
            "note": self.note,
            "reasons": dict(self.reasons),
            "remarks": list(self.remarks),
            "brightness": self.brightness,
            "num_dark": self.num_dark,
            "num_bright": self.num_bright,
            "copies": [list(names) for names in self.copies],
        }


def _text(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def survey(
    spec: str, *, read_all: bool = False, test_every: int = DEFAULT_TEST_EVERY, on_read: OnRead | None = None
) -> Survey:
    """Return the survey of a data set.

    Args:
        spec: See `specs.open_source`.
        read_all: Whether to read every image; otherwise a few are read, spread over the data set.
        test_every: For folders without a split of their own.

    Raises:
        InvalidData: The data set cannot be opened.
    """
    source = open_source(spec, test_every)
    sides = (source.train, source.test)
    wanted = [np.arange(len(side)) if read_all else spread(len(side)) for side in sides]
    if not read_all and len(wanted[0]):
        wanted[1] = wanted[1][:0]
    with remarks_on_pictures() as said:
        seen = _look(sides, wanted, on_read)
    copies = _copies(sides, seen.looks)
    looked = {"train": len(sides[0]), "test": len(sides[1])} if read_all else {"train": NUM_LOOKED_AT}
    lost = [said for side, most in looked.items() for said in lost_classes(source, side, most)]
    if test_every != DEFAULT_TEST_EVERY and not source.is_divided:
        lost.append(f"{GIVEN.format('test')}: test_every = {test_every} does nothing")
    ordered = sorted(seen.sizes, key=lambda size: (min(size), size[0] * size[1], size))
    train, test = (tuple(np.bincount(side.labels_N, minlength=len(source.class_names)).tolist()) for side in sides)
    return Survey(
        spec=spec,
        classes=source.class_names,
        train=train,
        test=test,
        smallest=ordered[0] if ordered else None,
        largest=ordered[-1] if ordered else None,
        num_looked_at=sum(map(len, wanted)),
        unreadable=tuple(seen.unreadable),
        is_whole=read_all,
        note=source.note,
        reasons=_by_kind(seen.whys),
        remarks=(
            *(*source.remarks, *few_images(source), *lost),
            *(*counted(said), *dark([seen.top]), *_range(sides, seen.whys)),
            *_encoded_anew(sides, seen.small, copies),
            *given_away(_of_classes(source.class_names, sides, seen.traits)),
        ),
        brightness=(min(seen.means), sum(seen.means) / len(seen.means), max(seen.means)) if seen.means else None,
        num_dark=sum(mean < DARK for mean in seen.means),
        num_bright=sum(mean > 255 - DARK for mean in seen.means),
        copies=copies,
    )


def _by_kind(reasons: Iterable[str]) -> dict[str, int]:
    """Return the number of images by the reason; of reasons that differ in numbers alone the first stands for all."""
    kinds: dict[str, Counter[str]] = {}
    for reason in reasons:
        kinds.setdefault(_NUMBER.sub("", reason), Counter())[reason] += 1
    return {next(iter(of)) + (" (the first of them)" if len(of) > 1 else ""): of.total() for of in kinds.values()}


def _of_classes(
    names: Sequence[str], sides: Sequence[Samples], traits: Mapping[Place, Traits]
) -> dict[str, list[Traits]]:
    found: dict[str, list[Traits]] = {name: [] for name in names}
    for (side, i), each in traits.items():
        found[names[int(sides[side].labels_N[i])]].append(each)
    return found


def smallest_of(specs: Iterable[str]) -> Size | None:
    """Return the size of the image with the smallest side among those that a look at the data sets reads; None if none.

    Raises:
        InvalidData: A data set cannot be opened.
    """
    sizes = [size for spec in dict.fromkeys(specs) for size in _first(spec, None).sizes or _first(spec, "auto").sizes]
    return min(sizes, key=lambda size: (min(size), size[0] * size[1], size), default=None)


def range_said(spec: str) -> tuple[str, ...]:
    """Return a remark on the window, where some of the pictures that a look reads state no range.

    Raises:
        InvalidData: The data set cannot be opened.
    """
    return _range([open_source(spec, DEFAULT_TEST_EVERY).train], _first(spec, None).whys)


def _first(spec: str, window: Window) -> _Seen:
    """Return what a look at a data set sees: at its training images, where it has any."""
    source = open_source(spec, DEFAULT_TEST_EVERY).seen_through(window)
    side = source.train if len(source.train) else source.test
    return _look([side], [spread(len(side))], None)


def _range(sides: Sequence[Samples], reasons: Sequence[str]) -> tuple[str, ...]:
    """Return a remark on the window of pictures that could not be read without one."""
    auto = next((side.auto for side in sides if side.auto is not None), None)
    found = None if auto is None or not reasons else auto()
    return () if found is None else (RANGE.format(*found),)


@dataclass(slots=True)
class _Seen:
    """What was seen of the images: sizes, brightness, and by a glance those that may be the same picture."""

    sizes: set[Size] = field(default_factory=set)
    means: list[float] = field(default_factory=list)
    top: int = 0
    looks: dict[bytes, list[Place]] = field(default_factory=dict)
    small: dict[Place, np.ndarray] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    whys: list[str] = field(default_factory=list)
    traits: dict[Place, Traits] = field(default_factory=dict)


def _traits(pixels: Pixels, name: str) -> Traits:
    """Return what tells images apart besides what they show."""
    is_grey = pixels.shape[2] == 1 or bool((pixels == pixels[:, :, :1]).all())
    ending = os.path.splitext(name)[1].lower()
    return ("grey" if is_grey else "in colour"), f"of {_text(pixels.shape[:2])} pixels", ending and f"{ending} files"


def _look(sides: Sequence[Samples], wanted: list[Any], on_read: OnRead | None) -> _Seen:
    seen = _Seen()
    num_read, total = 0, sum(map(len, wanted))
    for number, (side, numbers) in enumerate(zip(sides, wanted, strict=True)):
        for i in numbers.tolist():
            pixels = side.read(i)
            if pixels is None:
                seen.unreadable.append(side.name(i))
                seen.whys.append(side.why(i))
            else:
                seen.traits.setdefault((number, i), _traits(pixels, side.name(i)))
                seen.sizes.add((pixels.shape[0], pixels.shape[1]))
                seen.top = max(seen.top, brightest(pixels)) if seen.top < DIM else seen.top
                few = np.ascontiguousarray(pixels[STEP // 2 :: STEP, STEP // 2 :: STEP])
                few = few if few.size else np.ascontiguousarray(pixels)
                seen.means.append(float(few.mean()))
                look = hashlib.blake2b(few.data, digest_size=16, key=repr(pixels.shape[:2]).encode()).digest()
                seen.looks.setdefault(look, []).append((number, i))
                if min(pixels.shape[:2]) >= SIDE:
                    colours = np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))
                    small = Image.fromarray(colours).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                    seen.small[number, i] = np.asarray(small).ravel()
            num_read += 1
            if on_read is not None:
                on_read(num_read, total)
    return seen


def _copies(sides: Sequence[Samples], looks: Mapping[bytes, list[Place]]) -> tuple[tuple[str, ...], ...]:
    """Return the images of the same pixels that are on two sides or in two classes; only those that look alike are read."""
    found = []
    for places in looks.values():
        if len({(side, int(sides[side].labels_N[i])) for side, i in places}) < 2:
            continue
        same: dict[str, list[Place]] = {}
        for side, i in places:
            pixels = sides[side].read(i)
            if pixels is not None:
                same.setdefault(digest_of(np.broadcast_to(pixels, (*pixels.shape[:2], 3))), []).append((side, i))
        for group in same.values():
            if len({(side, int(sides[side].labels_N[i])) for side, i in group}) > 1:
                found.append(tuple(_name(sides, place) for place in group))
    return tuple(sorted(found))


def _encoded_anew(
    sides: Sequence[Samples], small: Mapping[Place, np.ndarray], copies: Iterable[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return a remark on test images that look as training images do and have other pixels; none where nothing does."""
    known = {name for names in copies for name in names}
    places = [place for place, each in small.items() if each.std() >= CONTRAST and _name(sides, place) not in known]
    of_side = [[place for place in places if place[0] == number] for number in (0, 1)]
    if not all(of_side):
        return ()
    if len(of_side[0]) * len(of_side[1]) > MOST_PAIRS:
        return ("too many images to look for test images that are training images in another encoding or size",)
    train_ND, test_ND = (np.array([small[place] for place in found], np.float32) for found in of_side)
    lengths_N = np.square(train_ND).sum(1)
    pairs = []
    for place, test_D in zip(of_side[1], test_ND, strict=True):
        squares_8N = lengths_N - 2 * (_turned(test_D) @ train_ND.T) + np.square(test_D).sum()
        nearest = int(squares_8N.argmin()) % len(train_ND)
        if squares_8N.min() <= len(test_D) * min(ALIKE, test_D.std() / 10) ** 2:
            pairs.append(f"{_name(sides, place)} and {_name(sides, of_side[0][nearest])}")
    if not pairs:
        return ()
    return (
        f"{len(pairs)} of the test images look as training images do, maybe encoded anew, in another size, turned or "
        f"mirrored: {listed(pairs)}; an image that is trained on says nothing of new ones; of frames or cuts of one scene, "
        "name it: ?group=PATTERN",
    )


def _turned(small_D: np.ndarray) -> np.ndarray:
    """Return a small picture in the eight ways that it may be turned and mirrored, `[8, D]`."""
    picture = small_D.reshape(SIDE, SIDE, -1)
    return np.stack([np.rot90(each, turns).ravel() for each in (picture, picture[:, ::-1]) for turns in range(4)])


def _name(sides: Sequence[Samples], place: Place) -> str:
    return f"{('train', 'test')[place[0]]}: {sides[place[0]].name(place[1])}"
