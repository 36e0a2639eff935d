"""Choice of the test images on a map: equally many of each class and domain, the same on every call.

Shape legend: N images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedplcc.pictures.shown_clients import ShownClient, reading
from fedplcc.shared.config.run import DataSection
from fedplcc.shared.errors import InvalidData
from fedplcc.shared.types import IntArray
from fedplcc.trainer.data import ImageSet, load_split, opened_once

MOST_IMAGES = 2000
"""Most images on a map: more would hide each other, and the projection's time grows with them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ImageSample:
    """Test images of several domains.

    Attributes:
        domains: Names of the domains, sorted.
    """

    images: ImageSet
    domain_ids_N: IntArray
    domains: tuple[str, ...]


def images_per_class(wanted: int, *, num_domains: int, num_classes: int) -> int:
    """Return the number of images of each class and domain: as wanted, or fewer so that the total is `MOST_IMAGES`."""
    return min(wanted, max(1, MOST_IMAGES // (num_domains * num_classes)))


def balanced(labels_N: IntArray, sources_N: IntArray, per_class: int) -> IntArray:
    """Return the indices of at most `per_class` images of each class, in order, as evenly from the sources as possible.

    Args:
        sources_N: Data set of the domain that each image is from.
        per_class: Most images of a class.
    """
    chosen = []
    for label in np.unique(labels_N):
        of_class = np.flatnonzero(labels_N == label)
        # The first image of every source, then the second of every source, and so on.
        place = np.concatenate([np.arange(np.sum(sources_N[of_class] == source)) for source in np.unique(sources_N)])
        by_source = of_class[np.argsort(sources_N[of_class], kind="stable")]
        chosen.append(by_source[np.argsort(place, kind="stable")][:per_class])
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def read_sample(clients: Sequence[ShownClient], contract: DataSection, *, per_class: int) -> ImageSample:
    """Read the test images that a map of these clients shows.

    Args:
        clients: The clients; those of one domain share its images.
        per_class: Wanted images of each class and domain; see `images_per_class`.

    Raises:
        InvalidData: Data cannot be read, or there is no test image at all.
    """
    domains = tuple(sorted({client.domain for client in clients}))
    per_class = images_per_class(per_class, num_domains=len(domains), num_classes=len(contract.classes))
    pixels, labels, domain_ids = [], [], []
    with opened_once():
        for domain_id, domain in enumerate(domains):
            found = _of_domain([client for client in clients if client.domain == domain], contract, per_class)
            pixels.append(found.images_NSS3)
            labels.append(found.labels_N)
            domain_ids.append(np.full(len(found), domain_id))
    images = ImageSet(np.concatenate(pixels), np.concatenate(labels))
    if not len(images):
        raise InvalidData("the data have no test image, and a map shows test images")
    return ImageSample(images=images, domain_ids_N=np.concatenate(domain_ids), domains=domains)


def _of_domain(clients: Sequence[ShownClient], contract: DataSection, per_class: int) -> ImageSet:
    by_data = {client.data: client for client in reversed(clients)}  # clients that share a test set share its images
    wanted = min(per_class, 2 * -(-per_class // len(by_data)))  # twice a data set's share, because some have less
    sets = []
    for client in sorted(by_data.values(), key=lambda client: client.name):
        with reading(client):
            sets.append(load_split(client.data, contract=contract, split="test", samples_per_class=wanted)[0])
    images = ImageSet(
        np.concatenate([found.images_NSS3 for found in sets]), np.concatenate([found.labels_N for found in sets])
    )
    sources_N = np.repeat(np.arange(len(sets)), [len(found) for found in sets])
    chosen = balanced(images.labels_N, sources_N, per_class)
    return ImageSet(images.images_NSS3[chosen], images.labels_N[chosen])
