"""The map of features and prototypes as data. Pure.

Shape legend: N points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedplcc.pictures.points import DoubleArray, Kind, Points
from fedplcc.shared.types import IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """The part of a map that shows one model.

    Attributes:
        xy_N2: Their places on the plane; each panel has its own plane.
    """

    title: str
    points: Points
    xy_N2: DoubleArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureMap:
    """A map of one panel, or of two for comparison, from left to right."""

    panels: tuple[Panel, ...]
    classes: tuple[str, ...]
    domains: tuple[str, ...]


def label_spots(panel: Panel) -> dict[int, tuple[float, float]]:
    """Return the places of the classes' names: the image of each class with the nearest neighbours of its class.

    A class has no place if most images around that image are of other classes: names would mislead on the map of a model
    that has learnt nothing.
    """
    spots = {}
    is_image_N = panel.points.of(Kind.IMAGE)
    xy_N2, class_ids_N = panel.xy_N2[is_image_N], panel.points.class_ids_N[is_image_N]
    for class_id in np.unique(class_ids_N).tolist():
        own_K2 = xy_N2[class_ids_N == class_id]
        distances_KK = np.linalg.norm(own_K2[:, None] - own_K2[None], axis=2)
        around = max(1, len(own_K2) // 4) + 1
        spot_2 = own_K2[int(np.sort(distances_KK, axis=1)[:, :around].mean(1).argmin())]
        nearest_N = np.argsort(np.linalg.norm(xy_N2 - spot_2, axis=1), kind="stable")[:around]
        if np.mean(class_ids_N[nearest_N] == class_id) > 0.5:
            spots[class_id] = (float(spot_2[0]), float(spot_2[1]))
    return spots


def coloured_classes(panels: Sequence[Panel], num_classes: int, num_colours: int) -> IntArray:
    """Return the classes with a colour of their own, in order: all, or those with the most images on the map."""
    ids = np.concatenate([panel.points.class_ids_N[panel.points.of(Kind.IMAGE)] for panel in panels])
    counts_M = np.bincount(ids, minlength=num_classes)
    return np.sort(np.argsort(-counts_M, kind="stable")[:num_colours])
