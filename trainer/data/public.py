"""Public images: the unlabelled images that every client of a run has, read alike everywhere."""

from __future__ import annotations

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.images.scaling import Window
from fedplcc.trainer.data.loading import ImageSet
from fedplcc.trainer.data.reading import IN_MEMORY, Reader, read_sides
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.reproducibility.randomness import derive_seed


def load_public(
    spec: str,
    num_images: int,
    *,
    image_size: int,
    test_every: int,
    window: Window = None,
    reader: Reader = IN_MEMORY,
) -> ImageSet:
    """Read public images: `num_images` of the data set's training images, drawn and ordered by their number alone.

    Labels are not looked at: those of the result are all 0.

    Args:
        spec: See `specs.open_source`.
        num_images: n.
        image_size: S.
        test_every: For folders without a split of their own.
        window: The run's `[data] window`.

    Raises:
        InvalidData: The data set cannot be opened, has fewer training images, or one of them cannot be read.
        DiskFull, StoreUnavailable, Cancelled: See `read_sides`.
    """
    samples = open_source(spec, test_every).train.seen_through(window)
    if len(samples) < num_images:
        raise InvalidData(
            f"public data {spec!r} have {len(samples)} training images, and the run uses {num_images} "
            "(public.num_images)"
        )
    drawn = samples.take(_chosen(len(samples), num_images))
    (read,) = read_sides([(drawn, [(np.arange(num_images), num_images)])], image_size, reader)
    if read.unreadable:
        raise InvalidData(
            f"public image {read.unreadable[0]!r} cannot be read; every client needs the same {num_images}"
        )
    return ImageSet(read.images, np.zeros(num_images, np.int64))


def _chosen(num_samples: int, num_images: int) -> IntArray:
    """Return the numbers of the images in their order of use: mixed, because many data sets lie sorted by class."""
    keys = [derive_seed("public", number) for number in range(num_samples)]
    return np.argsort(np.array(keys), kind="stable")[:num_images].astype(np.int64)
