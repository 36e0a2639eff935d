"""Projection from feature space to a plane by t-SNE, and silhouettes in feature space; both are scikit-learn's.

Distances are cosine distances, as in the methods' losses and in FINCH: rows are scaled to unit length first, where the
squared Euclidean distance is 2 (1 - cos).

t-SNE: van der Maaten, Hinton, "Visualizing Data using t-SNE", JMLR 2008. Silhouette: Rousseeuw, "Silhouettes: a
graphical aid to the interpretation and validation of cluster analysis", 1987.

Shape legend: N points, D feature size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sklearn
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_samples
from sklearn.metrics.pairwise import cosine_distances
from threadpoolctl import threadpool_limits

from fedplcc.pictures.points import DoubleArray
from fedplcc.shared.errors import InvalidData, InvalidModel
from fedplcc.shared.types import FloatArray, IntArray

LIBRARY = f"scikit-learn {sklearn.__version__}"
FEWEST_POINTS = 5
"""Least number of points of a map."""
MIN_NORM = 1e-12
"""A row with a smaller norm has no direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silhouettes:
    """Mean silhouettes of images, each in [-1, 1]: high if images are nearer to their own group than to the next one.

    None unless there are two groups and one of them has two members.

    Attributes:
        by_class: Groups are classes; high if classes are well separated.
        by_domain: Groups are domains; near 0 or below, the domains are mixed.
        by_domain_within_class: Groups are the domains of one class, averaged over images. Unlike `by_domain` it does
            not fall just because classes move apart, so it shows whether domains align.
    """

    by_class: float | None
    by_domain: float | None
    by_domain_within_class: float | None


def project(features_ND: FloatArray, *, perplexity: float, seed: int) -> DoubleArray:
    """Return each point's place on a plane, `[N, 2]`, by t-SNE; equal for equal arguments on one machine.

    Args:
        features_ND: Points; zero rows have no direction and are placed apart.
        perplexity: Approximate number of near neighbours; see `usable_perplexity`.
        seed: Seed of t-SNE's random numbers.

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
    tsne = TSNE(
        perplexity=usable_perplexity(perplexity, num_points),
        init="pca",
        learning_rate="auto",
        random_state=seed,
        n_jobs=1,
    )
    # The order of sums over several threads varies; one thread gives equal bytes every time.
    with threadpool_limits(limits=1):
        return np.asarray(tsne.fit_transform(unit_ND), dtype=np.float64)


def usable_perplexity(wanted: float, num_points: int) -> float:
    """Return the wanted perplexity, or a third of a point's neighbours if that is less."""
    return min(wanted, (num_points - 1) / 3)


def silhouettes(features_ND: FloatArray, class_ids_N: IntArray, domain_ids_N: IntArray) -> Silhouettes:
    """Return the silhouettes of images in feature space, by cosine distance.

    Args:
        features_ND: Features of the images, not of prototypes.
    """
    with threadpool_limits(limits=1):
        distances_NN = cosine_distances(features_ND.astype(np.float64))
    within, count = 0.0, 0
    for class_id in np.unique(class_ids_N):
        rows = np.flatnonzero(class_ids_N == class_id)
        values = _silhouettes(distances_NN[np.ix_(rows, rows)], domain_ids_N[rows])
        if values is not None:
            within, count = within + float(values.sum()), count + len(values)
    return Silhouettes(
        by_class=_mean(_silhouettes(distances_NN, class_ids_N)),
        by_domain=_mean(_silhouettes(distances_NN, domain_ids_N)),
        by_domain_within_class=within / count if count else None,
    )


def _silhouettes(distances_NN: DoubleArray, groups_N: IntArray) -> DoubleArray | None:
    if not 2 <= len(np.unique(groups_N)) < len(groups_N):
        return None
    return np.asarray(silhouette_samples(distances_NN, groups_N, metric="precomputed"), dtype=np.float64)


def _mean(values_N: DoubleArray | None) -> float | None:
    return None if values_N is None else float(values_N.mean())


def _unit_rows(features_ND: FloatArray) -> DoubleArray:
    rows_ND = features_ND.astype(np.float64)
    norms_N = np.linalg.norm(rows_ND, axis=1)
    unit_ND: DoubleArray = rows_ND / np.where(norms_N < MIN_NORM, 1.0, norms_N)[:, None]
    return unit_ND
