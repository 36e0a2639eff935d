"""Global prototypes that a run takes over from the round that its initial model comes from. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.shared.types import PrototypeSet


def carried_prototypes(prototypes: PrototypeSet, classes: Sequence[str], known: Sequence[str]) -> PrototypeSet:
    """Return the prototypes of the classes that stay, by class, with the class ids of the new run.

    Args:
        prototypes: Global prototypes of the round, `[n, D]`.
    """
    places = {name: place for place, name in enumerate(classes)}
    ids_n = np.array([places.get(name, -1) for name in known], np.int64)[prototypes.class_ids]
    kept = np.argsort(ids_n, kind="stable")
    kept = kept[ids_n[kept] >= 0]
    return PrototypeSet(
        vectors=prototypes.vectors[kept],
        class_ids=ids_n[kept],
        weights=prototypes.weights[kept],
        group_ids=prototypes.group_ids[kept],
    )
