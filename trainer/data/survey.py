"""Survey of a data set for people: classes, counts, image sizes and files that cannot be read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.data.first_look import spread
from trainer.data.loading import DEFAULT_TEST_EVERY
from trainer.data.source import Samples
from trainer.data.specs import open_source

Size = tuple[int, int]
"""Height and width in pixels."""
OnRead = Callable[[int, int], None]
"""Called with the number of images that have been read and of those to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A data set in numbers.

    Attributes:
        spec: Its specification.
        classes: Its own class names, in its order.
        train: Training images of each class; files are counted, whether they can be read or not.
        test: Test images of each class.
        smallest: Size of the image with the fewest pixels among those that were read; None if none could be read.
        largest: Size of the image with the most pixels.
        num_looked_at: Number of images that were tried.
        unreadable: Names of those of them that could not be read.
        is_whole: Whether every image was read.
        note: Remark that belongs into every report of results on this data; empty if there is none.
        reasons: Number of the images that could not be read, by the reason.
        remarks: Sentences for the owner: what was left out, and how folders were understood.
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
        on_read: See `OnRead`.

    Raises:
        InvalidData: The data set cannot be opened.
    """
    source = open_source(spec, test_every)
    sides = (source.train, source.test)
    wanted = [np.arange(len(side)) if read_all else spread(len(side)) for side in sides]
    if not read_all and len(wanted[0]):
        wanted[1] = wanted[1][:0]
    sizes, unreadable, reasons = _sizes(sides, wanted, on_read)
    ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
    train, test = (tuple(np.bincount(side.labels_N, minlength=len(source.class_names)).tolist()) for side in sides)
    return Survey(
        spec=spec,
        classes=source.class_names,
        train=train,
        test=test,
        smallest=ordered[0] if ordered else None,
        largest=ordered[-1] if ordered else None,
        num_looked_at=sum(map(len, wanted)),
        unreadable=tuple(unreadable),
        is_whole=read_all,
        note=source.note,
        reasons=reasons,
        remarks=source.remarks,
    )


def _sizes(
    sides: Iterable[Samples], wanted: list[Any], on_read: OnRead | None
) -> tuple[set[Size], list[str], Counter[str]]:
    """Return the sizes that occur, the names of the images that could not be read, and the reasons."""
    sizes: set[Size] = set()
    unreadable, reasons = [], Counter[str]()
    num_read, total = 0, sum(map(len, wanted))
    for side, numbers in zip(sides, wanted, strict=True):
        for i in numbers.tolist():
            pixels = side.read(i)
            if pixels is None:
                unreadable.append(side.name(i))
                reasons[side.why(i)] += 1
            else:
                sizes.add((pixels.shape[0], pixels.shape[1]))
            num_read += 1
            if on_read is not None:
                on_read(num_read, total)
    return sizes, unreadable, reasons
