"""Attacks on class sums with noise: who is in them, and whether one record is.

The features are those of the first model, which no image had a part in: the sums of a model that was trained on the
images in the clear have no claim. The attacker knows everything but the noise, and has the mean of all releases.

Shape legend: N images, M classes, D feature size.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.privacy import attacks
from fedplcc.shared.privacy.class_sums import Release, Sums, centred, class_sums, noise_facts, released
from fedplcc.shared.privacy.guarantee import noise_for
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet

EPSILONS, RELEASES = (1, 3, 8), (1, 5, 50)
DELTA = 1e-5
DRAWS = 400
"""Releases with the canary, and as many without; with several releases to a run, that many fewer runs."""
LEAST_DRAWS = 40
Samples = tuple[FloatArray, IntArray]
CASES: Mapping[str, tuple[int, int]] = {
    f"class sums, epsilon {epsilon}, {num} release{'s' * (num > 1)}": (epsilon, num)
    for epsilon in EPSILONS
    for num in RELEASES
}
"""Epsilon of all releases together, and their number."""


class NoisySums:
    """Releases of one client's sums, by the trainer's own code."""

    def __init__(self, samples: Samples, num_classes: int, epsilon: float, releases: int, seed: int) -> None:
        features_ND, _ = samples
        self._samples, self._num_classes, self._num = samples, num_classes, releases
        self.clip = float(np.median(np.linalg.norm(centred(features_ND), axis=1)))
        self._release = Release(clip=self.clip, noise=noise_for(epsilon, DELTA, releases))
        self._seed = seed

    def mean(self, num: int) -> PrototypeSet:
        """Return the mean of the first releases, as the vectors of their classes."""
        return PrototypeSet(
            vectors=self._mean(self._sums(*self._samples), num, "north").sums_MD.astype(np.float32),
            class_ids=np.arange(self._num_classes),
            weights=np.ones(self._num_classes, np.float32),
            group_ids=np.full(self._num_classes, -1),
        )

    def canary_area(self) -> float:
        """Return the area under the ROC curve by which the best attack tells sums with one more record from those without.

        The record is as long as the clip, in a class of its choice: no other moves the sums by more.
        """
        features_ND, labels_N = self._samples
        canary_D = np.zeros(features_ND.shape[1], np.float32)
        canary_D[:2] = 10 * self.clip, -10 * self.clip
        without = self._sums(features_ND, labels_N)
        with_it = self._sums(np.concatenate([features_ND, canary_D[None]]), np.append(labels_N, 0))
        direction_MD = with_it.sums_MD - without.sums_MD
        variance = (self._release.noise * self.clip) ** 2

        def score(sums: Sums, who: str) -> float:
            found = self._mean(sums, self._num, who)
            return float(
                (found.sums_MD * direction_MD).sum() / variance + found.counts_M[0] / (4 * self._release.noise) ** 2
            )

        draws = range(max(LEAST_DRAWS, DRAWS // self._num))
        return attacks.area(
            np.array([score(with_it, f"with {number}") for number in draws]),
            np.array([score(without, f"without {number}") for number in draws]),
        )

    def _sums(self, features_ND: FloatArray, labels_N: IntArray) -> Sums:
        digests = [f"{number:06}" for number in range(len(labels_N))]
        return class_sums(features_ND, labels_N, self._num_classes, self.clip, digests=digests)

    def _mean(self, sums: Sums, num: int, who: str) -> Sums:
        key = self._seed.to_bytes(32, "big")
        made = [released(sums, self._release, key, noise_facts(who, "", number)) for number in range(num)]
        return Sums(np.mean([each.sums_MD for each in made], 0), np.mean([each.counts_M for each in made], 0))
