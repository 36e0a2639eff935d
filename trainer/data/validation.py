"""Validation images: training images of a client that are set aside to choose models by, and are never trained on. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.roles import VALIDATION, has_role
from fedplcc.trainer.data.subset import class_order

NOTHING: IntArray = np.zeros(0, np.int64)


def held_out(
    labels_N: IntArray,
    class_names: Sequence[str],
    *,
    every: int | None,
    per_class: int | None,
    seed: int,
    keys: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
) -> IntArray:
    """Return the numbers of the training images that are for validation, ascending; int64.

    Of a class, `per_class` images are the last ones of the order in which a seeded subset takes them, and at most half of
    them all: a training subset stays as it is without validation where there is room for both. Without `per_class` one of
    `every` images is for validation: by its name where it has its role by that, see roles.py, else every `every`-th image of
    a class in the data set's own order. Whose group has an image for validation is for validation too.

    Args:
        labels_N: Class of each training image, an index into `class_names`.
        every: The run's `[data] validation_every`; None for no such rule.
        per_class: The client's own number, which goes before the run's rule.
        seed: That of the client's training subset.
        keys: See `Samples`, as the one that follows.
        groups: The patient, lesion or camera of each image.
    """
    numbers: list[IntArray] = []
    for label, name in enumerate(class_names):
        of_class = np.flatnonzero(labels_N == label)
        if per_class is not None:
            count = min(per_class, len(of_class) // 2)
            numbers.append(class_order(of_class, name, seed, keys)[len(of_class) - count :])
        elif every is not None and keys is not None:
            numbers.append(of_class[[has_role(keys[i], VALIDATION, every) for i in of_class.tolist()]])
        elif every is not None:
            numbers.append(of_class[every - 1 :: every])
    found = np.sort(np.concatenate(numbers)) if numbers else NOTHING
    if groups is None or not len(found):
        return found
    chosen = {groups[i] for i in found.tolist()}
    return np.array([i for i, group in enumerate(groups) if group in chosen], np.int64)
