"""Class sums of one client with a bound on what a record moves, and their release with noise; docs/privacy.md.

Two data sets are neighbours where they differ in one record, which in the other adds nothing. A record is an image with its
label, or all images of one group: a group's features are averaged first.

Shape legend: N images, D feature size, M classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray
from fedplcc.shared.methods.parts.private_sums import COUNT_RATIO
from fedplcc.shared.privacy.guarantee import mu_of_release
from fedplcc.shared.privacy.noise import noise_words, normal_noise
from fedplcc.shared.types import FloatArray, IntArray

GRID_BITS = 20
"""Released sums are whole multiples of C 2^-20, counts of 2^-20."""


@dataclass(frozen=True, slots=True)
class Release:
    """How class sums are released.

    Attributes:
        clip: C, the largest L2 norm with which a record counts.
        noise: z; sums get noise of deviation z C, counts of 4 z.
    """

    clip: float
    noise: float

    @property
    def mu(self) -> float:
        """Cost of one release in Gaussian differential privacy."""
        return mu_of_release(self.noise)

    @property
    def variance(self) -> float:
        """Variance of the noise on each number of the sums."""
        return (self.noise * self.clip) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Class sums and counts.

    Attributes:
        sums_MD: Of clipped features.
        counts_M: Of records, of a group with several classes in shares.
    """

    sums_MD: DoubleArray
    counts_M: DoubleArray

    @property
    def sha256(self) -> bytes:
        """Digest of the exact numbers."""
        shape = np.array(self.sums_MD.shape, "<i8").tobytes()
        return hashlib.sha256(
            shape + self.sums_MD.astype("<f8").tobytes() + self.counts_M.astype("<f8").tobytes()
        ).digest()


def centred(features_ND: FloatArray) -> DoubleArray:
    """Return features less the mean of their own D numbers: what all features of a backbone share would only cost clip."""
    wide_ND = features_ND.astype(np.float64)
    found: DoubleArray = wide_ND - wide_ND.mean(1, keepdims=True)
    return found


def clipped(features_ND: DoubleArray, clip: float) -> DoubleArray:
    """Return f min(1, C / |f|) of each row, with a norm of at most C in float64 too."""
    norms_N = np.sqrt((features_ND * features_ND).sum(1))
    # A last bit below the quotient, so that rounding cannot make the norm exceed C.
    factors_N = np.where(norms_N > clip, (1 - 2.0**-40) * clip / np.maximum(norms_N, clip), 1.0)
    found: DoubleArray = features_ND * factors_N[:, None]
    return found


def class_sums(
    features_ND: FloatArray,
    labels_N: IntArray,
    num_classes: int,
    clip: float,
    *,
    digests: Sequence[str],
    groups: Sequence[str] | None = None,
    centres: bool = True,
) -> Sums:
    """Return the sums of all classes of the run, absent ones too.

    One record moves them by at most C, and the counts by at most 1, both in the L2 norm over all classes together. Records
    are added one after another in float64, in the order of their digests: the bytes are those of the images alone.

    Args:
        features_ND: Features under weights that are given: that no image of this client had a part in, for a claim on the
            whole site.
        num_classes: M.
        clip: C.
        digests: Digest of each image's pixels.
        centres: Whether features are taken less the mean of their own numbers.
        groups: The patient, lesion or camera of each image; each image is a record if None.
    """
    dim = features_ND.shape[1]
    wide_ND = centred(features_ND) if centres else features_ND.astype(np.float64)
    members: dict[str, list[int]] = {}
    for number, digest in enumerate(digests):
        members.setdefault(f"{number} {digest}" if groups is None else groups[number], []).append(number)
    records = [sorted(some, key=lambda i: (digests[i], int(labels_N[i]))) for some in members.values()]
    records.sort(key=lambda some: [(digests[i], int(labels_N[i])) for i in some])
    sums_MD, counts_M = np.zeros((num_classes, dim)), np.zeros(num_classes)
    for some in records:
        of_class: dict[int, list[int]] = {}
        for i in some:
            of_class.setdefault(int(labels_N[i]), []).append(i)
        for label, images in of_class.items():
            # A group of several classes counts in shares: lengths of shares of C add up to at most C.
            share = len(images) / len(some)
            mean_D = np.zeros(dim)
            for i in images:
                mean_D += wide_ND[i]
            mean_D /= len(images)
            sums_MD[label] += share * clipped(mean_D[None], clip)[0]
            counts_M[label] += share
    return Sums(sums_MD, counts_M)


def noise_facts(client_id: str, run_hash: str, round: int) -> tuple[bytes, ...]:
    """Return what the noise of a release is for.

    Two runs of one configuration have the same noise for the same sums, which then are one release.
    """
    return client_id.encode(), run_hash.encode(), str(round).encode()


def release_name(sums: Sums, release: Release, key: bytes, facts: Sequence[bytes]) -> str:
    """Return a name that is equal for equal releases alone, in hexadecimal; it tells nobody without the key anything."""
    return noise_words(key, (b"name", *_all_facts(sums, release, facts)), 4).tobytes().hex()


def _all_facts(sums: Sums, release: Release, facts: Sequence[bytes]) -> tuple[bytes, ...]:
    return (*facts, np.array([release.clip, release.noise], "<f8").tobytes(), sums.sha256)


def released(sums: Sums, release: Release, key: bytes, facts: Sequence[bytes]) -> Sums:
    """Return sums and counts with noise, rounded to the grid: what may leave the client.

    The noise is a function of the key, the facts and the exact sums: the same release again has the same bytes, and that of
    other sums has other noise.

    Args:
        sums: Of `class_sums` with the release's clip.
        key: A secret of the client that never leaves it.
    """
    num_classes, dim = sums.sums_MD.shape
    drawn = normal_noise(key, (b"noise", *_all_facts(sums, release, facts)), num_classes * dim + num_classes)
    noisy_MD = sums.sums_MD / release.clip + release.noise * drawn[: num_classes * dim].reshape(num_classes, dim)
    noisy_M = sums.counts_M + COUNT_RATIO * release.noise * drawn[num_classes * dim :]
    return Sums(release.clip * on_grid(noisy_MD), on_grid(noisy_M))


def on_grid(values: DoubleArray) -> DoubleArray:
    """Return values rounded to whole multiples of 2^-20."""
    rounded: DoubleArray = np.ldexp(np.rint(np.ldexp(values, GRID_BITS)), -GRID_BITS)
    return rounded
