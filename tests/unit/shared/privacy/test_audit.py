"""An audit of the claim: one canary, 2,000 pairs of releases with and without it, and the best attack on them.

An attack that accepts a share p of the releases with the canary and q of those without shows that the release is not
(epsilon, delta)-private for any epsilon below ln((p - delta) / q). The bound has a confidence of 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from fedplcc.shared.privacy.class_sums import Release, Sums, class_sums, noise_facts, released
from fedplcc.shared.privacy.guarantee import noise_for

PAIRS, D, M = 2000, 6, 2
EPSILON, DELTA, CLIP = 1.0, 1e-5, 0.5
NOISE = noise_for(EPSILON, DELTA, 1)
CANARY = np.array([[10, -10, 0, 0, 0, 0]], np.float32)

Make = Callable[[Sums, int], Sums]


def data(*, has_canary: bool, clip: float = CLIP) -> Sums:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(7, D)).astype(np.float32)
    features, labels = (
        (np.concatenate([features, CANARY]), [0, 0, 0, 1, 1, 1, 1, 0])
        if has_canary
        else (features, [0, 0, 0, 1, 1, 1, 1])
    )
    return class_sums(features, np.array(labels), M, clip, digests=[f"{i}" for i in range(len(labels))])


def secret(number: int) -> bytes:
    return number.to_bytes(32, "big")


def as_it_is(sums: Sums, number: int) -> Sums:
    return released(sums, Release(clip=CLIP, noise=NOISE), secret(number), noise_facts("north", "", 1))


def likelihood(made: Sums) -> float:
    """The log of the ratio of the two densities, up to a constant: no attack on a release of honest noise is better."""
    direction = np.array([1, -1, 0, 0, 0, 0]) / math.sqrt(2)
    return float(made.sums_MD[0] @ direction / (CLIP * NOISE**2) + made.counts_M[0] / (4 * NOISE) ** 2)


def bound(scores_with: np.ndarray, scores_without: np.ndarray) -> float:
    """The lower bound on epsilon: a threshold is chosen on half of the pairs and tried on the others, in both directions."""
    half, best = len(scores_with) // 2, 0.0
    for sign in (1, -1):
        yes, no = (
            (sign * scores_with, sign * scores_without) if sign > 0 else (sign * scores_without, sign * scores_with)
        )

        def told(threshold: float, part: slice, yes: np.ndarray = yes, no: np.ndarray = no) -> float:
            hits, false = int((yes[part] > threshold).sum()), int((no[part] > threshold).sum())
            num = len(yes[part])
            # Clopper and Pearson, 97.5 % each.
            least = stats.beta.ppf(0.025, hits, num - hits + 1) if hits else 0.0
            most = stats.beta.ppf(0.975, false + 1, num - false) if false < num else 1.0
            return math.log((least - DELTA) / most) if least > DELTA else 0.0

        candidates = np.quantile(np.concatenate([yes[:half], no[:half]]), np.linspace(0.005, 0.995, 100))
        chosen = max(candidates.tolist(), key=lambda threshold: told(threshold, slice(0, half)))
        best = max(best, told(chosen, slice(half, None)))
    return best


def audited(make: Make, clip: float = CLIP, score: Callable[[Sums, int], float] | None = None) -> float:
    attack = score or (lambda made, number: likelihood(made))
    scores = []
    for has_canary, first in ((True, 0), (False, PAIRS)):
        sums = data(has_canary=has_canary, clip=clip)
        scores.append(np.array([attack(make(sums, first + n), first + n) for n in range(PAIRS)]))
    return bound(scores[0], scores[1])


def test_the_bound_never_exceeds_the_claim() -> None:
    found = audited(as_it_is)
    assert 0.1 < found <= EPSILON  # the attack finds something, and less than is claimed


def test_without_noise_it_does() -> None:
    assert audited(lambda sums, number: sums) > EPSILON


def test_with_another_clip_than_claimed_it_does() -> None:
    assert audited(as_it_is, clip=20 * CLIP) > EPSILON


def test_with_a_public_seed_in_the_generator_it_does() -> None:
    guess = data(has_canary=True)

    def score(made: Sums, number: int) -> float:
        # Who knows the key, as all know a run's seed, makes the release again for each guess of the data.
        return float(np.array_equal(as_it_is(guess, number).sums_MD, made.sums_MD)) + 1e-9 * likelihood(made)

    assert audited(as_it_is, score=score) > EPSILON
