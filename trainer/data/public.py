"""Public images: the unlabelled images that every client of a run has, read alike everywhere.

Shape legend: n images, S image size.
"""

from __future__ import annotations

import numpy as np

from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.images.scaling import Window
from fedplcc.trainer.data.loading import ImageSet
from fedplcc.trainer.data.source import fit_image
from fedplcc.trainer.data.specs import open_source
from fedplcc.trainer.reproducibility.randomness import derive_seed


def load_public(spec: str, num_images: int, *, image_size: int, test_every: int, window: Window = None) -> ImageSet:
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
    """
    samples = open_source(spec, test_every).train.seen_through(window)
    if len(samples) < num_images:
        raise InvalidData(
            f"public data {spec!r} have {len(samples)} training images, and the run uses {num_images} "
            "(public.num_images)"
        )
    images_nSS3 = np.empty((num_images, image_size, image_size, 3), np.uint8)
    for place, number in enumerate(_chosen(len(samples), num_images).tolist()):
        pixels = samples.read(number)
        if pixels is None:
            raise InvalidData(
                f"public image {samples.name(number)!r} cannot be read; every client needs the same {num_images}"
            )
        images_nSS3[place] = fit_image(pixels, image_size)
    return ImageSet(images_nSS3, np.zeros(num_images, np.int64))


def _chosen(num_samples: int, num_images: int) -> IntArray:
    """Return the numbers of the images in their order of use: mixed, because many data sets lie sorted by class."""
    keys = [derive_seed("public", number) for number in range(num_samples)]
    return np.argsort(np.array(keys), kind="stable")[:num_images].astype(np.int64)
