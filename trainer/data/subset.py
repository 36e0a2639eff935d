"""Subsets by class: of each class the first n images after a shuffle that depends on (seed, class name) alone.

Images that have their role by name are shuffled by digests of their names: one that arrives moves no other. So a larger
subset contains every smaller one, and a class's subset does not change when another class does. A class-balanced subset has
the same n for every class; a share has the same part of every class, so that the classes keep their balance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.roles import digest
from fedplcc.trainer.reproducibility.randomness import derive_seed

NUM_LOOKED_AT = 8
"""Number of images that are opened where not all of them are."""


def spread(num_samples: int, most: int = NUM_LOOKED_AT) -> IntArray:
    """Return the numbers of at most so many samples, from the first to the last one."""
    return np.unique(np.linspace(0, max(num_samples - 1, 0), min(num_samples, most)).astype(np.int64))


def class_order(indices_N: IntArray, class_name: str, seed: int, keys: Sequence[str] | None = None) -> IntArray:
    """Return the class's image numbers in the order in which a subset takes them; `keys` has the name of every image."""
    if keys is not None:
        placed = [(digest("subset", str(seed), class_name, keys[i]), keys[i], i) for i in indices_N.tolist()]
        return np.array([i for _, _, i in sorted(placed)], np.int64)
    return np.random.default_rng(derive_seed("subset", seed, class_name)).permutation(indices_N)


def subset_size(available: int, samples_per_class: int | None, fraction: float | None = None) -> int:
    """Return the number of images used of a class; a class with fewer than asked for keeps all of them.

    Args:
        fraction: Share of the class's images, rounded to the nearest number but at least one. At most one of the two is
            given; without both all images are used.
    """
    if samples_per_class is not None:
        return min(available, samples_per_class)
    if fraction is None:
        return available
    return min(available, max(1, math.floor(fraction * available + 0.5)))
