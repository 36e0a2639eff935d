"""Split of a shipped set into training and test images."""

from __future__ import annotations

import numpy as np

from fedplcc.shared.types import IntArray
from fedplcc.trainer.reproducibility.randomness import derive_seed


def held_out(labels_N: IntArray, share: float, name: str) -> tuple[IntArray, IntArray]:
    """Return the numbers of the training and of the test images, each sorted; of every class, `share` is for testing."""
    rng = np.random.default_rng(derive_seed("digits", name, "split"))
    is_test = np.zeros(len(labels_N), dtype=bool)
    for label in np.unique(labels_N):
        indices = rng.permutation(np.flatnonzero(labels_N == label))
        is_test[indices[: round(share * len(indices))]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
