"""Class-balanced subsets: of each class the first n images after a shuffle that depends on (seed, class name) alone.

So a larger subset contains every smaller one, and a class's subset does not change when another class does.
"""

from __future__ import annotations

import numpy as np

from shared.types import IntArray
from trainer.reproducibility.randomness import derive_seed


def class_order(indices_N: IntArray, class_name: str, seed: int) -> IntArray:
    """Return the class's image numbers in the order in which a subset takes them."""
    return np.random.default_rng(derive_seed("subset", seed, class_name)).permutation(indices_N)


def subset_size(available: int, samples_per_class: int | None) -> int:
    """Return the number of images used of a class; a class with fewer than asked for keeps all of them."""
    return available if samples_per_class is None else min(available, samples_per_class)
