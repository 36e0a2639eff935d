"""Points of a map's panel: images and prototypes in a model's feature space. Pure.

Shape legend: N points, D feature size, G prototypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet

DoubleArray = npt.NDArray[np.float64]

NO_DOMAIN = -1
"""Domain of a global prototype."""


class Kind(IntEnum):
    """Kind of a map's point."""

    IMAGE = 0
    LOCAL = 1
    GLOBAL = 2

    @property
    def label(self) -> str:
        """Name in tables and legends."""
        return ("test image", "local prototype", "global prototype")[self]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Points in a feature space.

    Attributes:
        features_ND: Features, float32.
        domain_ids_N: Indices into the domains shown; `NO_DOMAIN` for global prototypes.
        shares_N: Share of a prototype in its class, see `shares_of_class`; 0 for an image.
    """

    features_ND: FloatArray
    class_ids_N: IntArray
    domain_ids_N: IntArray
    kinds_N: IntArray
    shares_N: DoubleArray

    def __len__(self) -> int:
        return len(self.kinds_N)

    def of(self, kind: Kind) -> npt.NDArray[np.bool_]:
        """Return the mask of the points of a kind."""
        is_kind_N: npt.NDArray[np.bool_] = self.kinds_N == kind
        return is_kind_N

    def count(self, kind: Kind) -> int:
        """Return the number of points of a kind."""
        return int(self.of(kind).sum())


def points(
    features_ND: FloatArray,
    class_ids_N: IntArray,
    domain_ids_N: IntArray,
    *,
    local: Sequence[tuple[int, PrototypeSet]] = (),
    global_: PrototypeSet | None = None,
) -> Points:
    """Return the points of images, then of local prototypes, then of global ones.

    Args:
        local: Index of the domain and local prototypes of each client.
    """
    sets = [(domain_id, Kind.LOCAL, prototypes) for domain_id, prototypes in local if len(prototypes)]
    if global_ is not None and len(global_):
        sets.append((NO_DOMAIN, Kind.GLOBAL, global_))
    sizes = [len(prototypes) for _, _, prototypes in sets]
    num_images = len(class_ids_N)
    return Points(
        features_ND=np.concatenate([features_ND, *(prototypes.vectors for _, _, prototypes in sets)]),
        class_ids_N=np.concatenate([class_ids_N, *(prototypes.class_ids for _, _, prototypes in sets)]),
        domain_ids_N=np.concatenate(
            [domain_ids_N, np.repeat(np.array([domain for domain, _, _ in sets], np.int64), sizes)]
        ),
        kinds_N=np.concatenate(
            [
                np.full(num_images, int(Kind.IMAGE)),
                np.repeat(np.array([int(kind) for _, kind, _ in sets], np.int64), sizes),
            ]
        ),
        shares_N=np.concatenate([np.zeros(num_images), *(shares_of_class(prototypes) for _, _, prototypes in sets)]),
    )


def shares_of_class(prototypes: PrototypeSet) -> DoubleArray:
    """Return each prototype's share of the weight of its class, `[G]`; the shares of a class sum to 1.

    Prototypes with an owner or a cluster (a group id) and those without are summed apart: FedCCL's set holds averages and
    the pool that they average.
    """
    sort_G = 2 * prototypes.class_ids + (prototypes.group_ids >= 0)
    weights_G = prototypes.weights.astype(np.float64)
    totals = np.bincount(sort_G, weights=weights_G, minlength=1)
    shares_G: DoubleArray = weights_G / totals[sort_G]
    return shares_G
