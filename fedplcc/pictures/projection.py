"""Projection from feature space to a plane by scikit-learn's t-SNE.

Distances are cosine distances, as in the methods' losses and in FINCH: rows are scaled to unit length first, where the
squared Euclidean distance is 2 (1 - cos).

t-SNE: van der Maaten, Hinton, "Visualizing Data using t-SNE", JMLR 2008.

Shape legend: N points, D feature size.
"""

from __future__ import annotations

import numpy as np
from sklearn import manifold
from threadpoolctl import threadpool_limits

from fedplcc.pictures.points import DoubleArray
from fedplcc.shared.errors import InvalidData, InvalidModel
from fedplcc.shared.types import FloatArray

PERPLEXITY = 30.0
"""Approximate number of near neighbours; on a small map a third of a point's neighbours."""
FEWEST_POINTS = 5
"""Least number of points of a map."""
MIN_NORM = 1e-12
"""A row with a smaller norm has no direction."""


def project(features_ND: FloatArray) -> DoubleArray:
    """Return each point's place on a plane, `[N, 2]`, by t-SNE; equal for equal features on one machine.

    Zero rows have no direction and are placed apart.

    Raises:
        InvalidData: There are too few points.
        InvalidModel: All points have the same direction.
    """
    num_points = len(features_ND)
    if num_points < FEWEST_POINTS:
        raise InvalidData(f"there are {num_points} images and prototypes to map, and a map needs {FEWEST_POINTS}")
    unit_ND = _unit_rows(features_ND)
    if np.ptp(unit_ND, axis=0).max() < 1e-6:
        raise InvalidModel("the model gives every image features of the same direction, so there is nothing to map")
    tsne = manifold.TSNE(
        perplexity=min(PERPLEXITY, (num_points - 1) / 3),
        init="pca",
        learning_rate="auto",
        random_state=0,
        n_jobs=1,
    )
    # The order of sums over several threads varies; one thread gives equal bytes every time.
    with threadpool_limits(limits=1):
        return np.asarray(tsne.fit_transform(unit_ND), dtype=np.float64)


def _unit_rows(features_ND: FloatArray) -> DoubleArray:
    rows_ND = features_ND.astype(np.float64)
    norms_N = np.linalg.norm(rows_ND, axis=1)
    unit_ND: DoubleArray = rows_ND / np.where(norms_N < MIN_NORM, 1.0, norms_N)[:, None]
    return unit_ND
