"""First look at a client's data, before it joins: counts of all images, and a few of them opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.scoring.scores import FEW_IMAGES
from fedplcc.trainer.data.images.colours import remarks_on_pictures
from fedplcc.trainer.data.loading import DEFAULT_TEST_EVERY
from fedplcc.trainer.data.names import listed
from fedplcc.trainer.data.sets.doubts import brightest, dark
from fedplcc.trainer.data.source import Samples, Source
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.data.subset import NUM_LOOKED_AT, spread, subset_size

RANGE = 'pictures whose files state no range: a run reads them with data.window; "auto" is {:g} to {:g} here'
"""Remark on the window of a site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """A client's training images as far as they are known before a run is.

    Attributes:
        class_counts: Number of training images of each class, by the data set's own class names. Files are counted, not
            opened: unreadable ones count.
        smallest_side: Smallest side of those of them that could be read, in pixels.
        why: Why the first of them could not; empty if all could.
        remarks: Sentences for the owner: what was left out, and how folders were understood.
    """

    class_counts: Mapping[str, int]
    num_looked_at: int
    smallest_side: int
    unreadable: tuple[str, ...]
    why: str
    remarks: tuple[str, ...]


def first_look(
    spec: str,
    *,
    samples_per_class: int | None = None,
    fraction: float | None = None,
    evaluate_only: bool = False,
    class_images: int = 1,
) -> FirstLook:
    """Count a data set's training images and open a few, spread over it.

    Args:
        spec: See `specs.open_source`.
        samples_per_class: Size of a class-balanced training subset; all training images if None.
        fraction: Share of each class's training images, in place of it.
        evaluate_only: Whether to look at test images instead, and to count none for training.
        class_images: Least training images of a class that are counted.

    Raises:
        InvalidData: The data set cannot be opened, has no training image, or none of those looked at can be read.
    """
    source = open_source(spec, DEFAULT_TEST_EVERY)
    side, images = ("test", source.test) if evaluate_only else ("training", source.train)
    if not len(images):
        raise InvalidData(f"data {spec!r} has no {side} image; a client needs at least one")
    numbers = spread(len(images)).tolist()
    with remarks_on_pictures() as said:
        looked, tops, bad = _looked_at(images, numbers)
    lost = lost_classes(source, "test" if evaluate_only else "train")
    remarks = (*source.remarks, *few_images(source), *lost, *counted(said), *dark(tops))
    found = images.auto() if bad and images.auto is not None else None
    if found is not None:  # a run's data.window is not known yet: what that would show is no fault of the site
        seen = images.seen_through(found)
        more, _, bad = _looked_at(seen, bad)
        looked += more
        remarks = (*remarks, RANGE.format(*found))
    why = images.why(bad[0]) if bad else ""
    unreadable = [images.name(i) for i in bad]
    if len(unreadable) == len(numbers):
        raise InvalidData(
            f"data {spec!r}: none of the {len(numbers)} {side} images that were looked at can be read, "
            f"{unreadable[0]!r} among them: {why}; `fedplcc data describe SPEC --check` reads all of them"
        )
    counts = np.bincount(source.train.labels_N, minlength=len(source.class_names)).tolist()
    sizes = [subset_size(n, samples_per_class, fraction) for n in counts]
    if not evaluate_only and max(sizes) < class_images:
        raise InvalidData(
            f"data {spec!r}: its largest class has {max(sizes)} training images, and the policy of this site uses none of "
            f"fewer than {class_images} (thresholds.class_images)"
        )
    return FirstLook(
        class_counts={
            name: 0 if evaluate_only or size < class_images else size
            for name, size in zip(source.class_names, sizes, strict=True)
        },
        num_looked_at=len(numbers),
        smallest_side=min(looked),
        unreadable=tuple(unreadable),
        why=why,
        remarks=remarks,
    )


def lost_classes(source: Source, side: str, most: int = NUM_LOOKED_AT) -> list[str]:
    """Return a remark on classes of which no image of a side can be read, of at most so many of each that are opened."""
    samples: Samples = getattr(source, side)
    of = [np.flatnonzero(samples.labels_N == label) for label in range(len(source.class_names))]
    chosen = {name: each[spread(len(each), most)].tolist() for name, each in zip(source.class_names, of, strict=True)}
    lost = [name for name, numbers in chosen.items() if numbers and _is_lost(samples, numbers)]
    if lost:  # as in `first_look`, a window is no fault of the site
        seen = samples.seen_through("auto")
        lost = [name for name in lost if _is_lost(seen, chosen[name])]
    return [f"no image for {side}ing that was looked at can be read: {listed(lost)}"] if lost else []


def _is_lost(samples: Samples, numbers: Sequence[int]) -> bool:
    return all(samples.read(i) is None for i in numbers)


def _looked_at(samples: Samples, numbers: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return smaller side and largest number of each image of these numbers that can be read, and the others' numbers."""
    read = [(i, samples.read(i)) for i in numbers]
    found = [pixels for _, pixels in read if pixels is not None]
    sides = [min(pixels.shape[:2]) for pixels in found]
    return sides, [brightest(pixels) for pixels in found], [i for i, pixels in read if pixels is None]


def few_images(source: Source) -> list[str]:
    """Return a remark on classes of which a data set has few images."""
    sides = (source.train, source.test)
    counts = np.bincount(np.concatenate([side.labels_N for side in sides]), minlength=len(source.class_names)).tolist()
    few = [f"{name} ({n})" for name, n in zip(source.class_names, counts, strict=True) if 0 < n < FEW_IMAGES]
    return (
        [f"fewer than {FEW_IMAGES} images: {listed(few)}; scores of such a class hang on single images"] if few else []
    )


def counted(said: Iterable[str]) -> list[str]:
    """Return what was said of pictures, each sentence once, with the number of pictures."""
    return [f"{count} images: {text}" for text, count in sorted(Counter(said).items())]
