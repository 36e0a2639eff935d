"""Weights of which none is more than a share of them all. Pure.

Sample counts are what clients say themselves, so one could take nearly the whole of a mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedplcc.shared.types import PrototypeSet


def capped_weights(weights: Sequence[float], share: float) -> list[float]:
    """Return the weights with the largest lowered to `share` of the sum of what is returned.

    Where so few clients cannot all be below the share, all weigh as much as the least of them. Plain operations in
    ascending order: the same on any machine, whatever the order of the weights.

    Args:
        weights: Positive and finite.
        share: Above 0, at most 1.
    """
    if not weights or len(weights) * share <= 1:
        return [min(weights)] * len(weights) if weights else []
    ascending = sorted(weights)
    for num_capped in range(len(ascending)):
        rest = ascending[: len(ascending) - num_capped]
        left = 1 - num_capped * share
        cap = share * math.fsum(rest) / left if left > 0 else math.inf
        if rest[-1] <= cap:
            return [min(weight, cap) for weight in weights]
    raise AssertionError("the least of more than 1 / share weights is below the share")


def capped_sets(sets: Sequence[PrototypeSet], share: float) -> list[PrototypeSet]:
    """Return clients' prototypes with weights of which none's are more than a share of its class; see `capped_weights`.

    A client's prototypes of a class keep their weights among each other, each rounded once to float32.
    """
    totals: dict[int, dict[int, float]] = {}
    for place, each in enumerate(sets):
        for class_id in np.unique(each.class_ids).tolist():
            found = each.weights[each.class_ids == class_id].tolist()
            totals.setdefault(class_id, {})[place] = math.fsum(found)
    factors = [np.ones(len(each)) for each in sets]
    for class_id, of_class in totals.items():
        capped = capped_weights(list(of_class.values()), share)
        for (place, total), weight in zip(of_class.items(), capped, strict=True):
            if weight < total:
                factors[place][sets[place].class_ids == class_id] = weight / total
    return [
        each if (factor == 1).all() else PrototypeSet.of(each.vectors, each.class_ids, each.weights * factor)
        for each, factor in zip(sets, factors, strict=True)
    ]
