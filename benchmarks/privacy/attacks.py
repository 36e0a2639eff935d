"""Attacks on what a client sends: who was in the training, which single feature is there, which image gives a prototype.

Shape legend: N images, P prototypes, D feature size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet

Scores = npt.NDArray[np.float64]
SAME = 1e-5
"""Most by which a cosine with a sent vector may be below 1 for an image's own feature."""
STEPS, RATE = 150, 0.05
"""Steps of an inversion, and their size."""
SMOOTHNESS = 1e-3
"""Weight of the differences of neighbouring pixels in an inversion."""


def area(members: Scores, others: Scores) -> float:
    """Return the area under the ROC curve by which the score tells members from others; ties count half."""
    ascending = np.sort(others)
    below = np.searchsorted(ascending, members, side="left") + np.searchsorted(ascending, members, side="right")
    return float(below.mean() / 2 / len(others))


def found_at(members: Scores, others: Scores, false: float = 0.01) -> float:
    """Return the share of members above the score that this share of the others reaches."""
    return float((members > np.quantile(others, 1 - false)).mean())


def together(first: Sequence[Scores], second: Sequence[Scores]) -> tuple[Scores, Scores]:
    """Return the scores of an attack that has both: the sum of an image's two places among all images."""
    places = [stats.rankdata(np.concatenate(each)) for each in (first, second)]
    members, others = np.split(places[0] + places[1], [len(first[0])])
    return members, others


def nearness(features_ND: npt.NDArray[np.floating[Any]], labels_N: IntArray, sent: PrototypeSet) -> Scores:
    """Return each image's largest cosine with the sent vectors of its class; -1 where there is none."""
    cosines_NP = _units(features_ND) @ _units(sent.vectors).T
    cosines_NP[labels_N[:, None] != sent.class_ids[None, :]] = -1.0
    return np.asarray(cosines_NP.max(axis=1, initial=-1.0))


def is_sent(features_ND: FloatArray, labels_N: IntArray, sent: PrototypeSet) -> npt.NDArray[np.bool_]:
    """Whether each image's own feature is among the sent vectors of its class."""
    found: npt.NDArray[np.bool_] = nearness(features_ND, labels_N, sent) > 1 - SAME
    return found


def inverted(features_of: Callable[[Tensor], Tensor], vectors_PD: FloatArray, size: int, seed: int) -> Tensor:
    """Return images whose features point as the vectors do, as the model sees them, by gradient steps from grey.

    After Fredrikson, Jha, Ristenpart, "Model Inversion Attacks that Exploit Confidence Information", CCS 2015.
    """
    generator = torch.Generator().manual_seed(seed)
    x_P3SS = (torch.randn(len(vectors_PD), 3, size, size, generator=generator) / 20).requires_grad_()
    wanted_PD = torch.from_numpy(vectors_PD)
    optimiser = torch.optim.Adam([x_P3SS], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        distance = 1 - torch.nn.functional.cosine_similarity(features_of(x_P3SS), wanted_PD)
        rough = (x_P3SS.diff(dim=2).abs().mean() + x_P3SS.diff(dim=3).abs().mean()) * len(vectors_PD)
        (distance.sum() + SMOOTHNESS * rough).backward()
        optimiser.step()
        with torch.no_grad():
            x_P3SS.clamp_(-1.0, 1.0)
    return x_P3SS.detach()


def nearest(images_P: Tensor, of_N: Tensor) -> IntArray:
    """Return the place of the nearest of some images to each, by the correlation of their pixels."""
    rows, others = (each.flatten(1) - each.flatten(1).mean(1, keepdim=True) for each in (images_P, of_N))
    cosines = torch.nn.functional.normalize(rows) @ torch.nn.functional.normalize(others).T
    found: IntArray = cosines.argmax(1).numpy()
    return found


def _units(rows: npt.NDArray[np.floating[Any]]) -> Scores:
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12))
