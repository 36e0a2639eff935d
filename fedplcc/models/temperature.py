"""The temperature of a model: a number that logits are divided by, so that it is as sure of its classes as it is right.

Guo et al., On Calibration of Modern Neural Networks, ICML 2017, https://arxiv.org/abs/1706.04599, section 4.2; it changes no
prediction (docs/algorithms.md, rule 12.6). Pure.

Shape legend: N images, M classes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedplcc.shared.types import IntArray

LOWEST, HIGHEST = 0.05, 20.0
"""Temperatures between which one is sought: where all images are right, or none is, the best one is 0 or infinite."""
HALVINGS = 60
"""Halvings of that range, in logarithms: beyond float64's last bit."""


def fitted_temperature(logits_NM: npt.NDArray[np.float64], labels_N: IntArray) -> float:
    """Return the temperature with the least cross-entropy of labelled images, at least one, in [`LOWEST`, `HIGHEST`].

    The cross-entropy is convex in the inverse temperature, so its slope there changes its sign once.
    """
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _slope(logits_NM, labels_N, math.exp(-middle)) > 0:
            low = middle  # a lower inverse temperature is better
        else:
            high = middle
    return math.exp((low + high) / 2)


def doubts_about(temperature: float, labels_N: IntArray) -> tuple[str, ...]:
    """Return sentences on a fitted temperature that says little of new images."""
    said = []
    for bound, what in ((LOWEST, "lowest"), (HIGHEST, "highest")):
        if math.isclose(temperature, bound, rel_tol=1e-6):
            found = "right, so that any surer model fits them better" if bound == LOWEST else "wrong"
            said.append(
                f"{temperature:.3g} is the {what} temperature that is sought: nearly all of the validation images are found "
                f"{found}; take more of them before you believe these probabilities"
            )
    if len(np.unique(labels_N)) == 1:
        said.append("all validation images are of one class: nothing is known of the probabilities of the others")
    return tuple(said)


def _slope(logits_NM: npt.NDArray[np.float64], labels_N: IntArray, inverse: float) -> float:
    """Return the derivative of the mean cross-entropy by the inverse temperature: mean logit minus the class's."""
    scaled_NM = inverse * (logits_NM - logits_NM.max(axis=1, keepdims=True))
    parts_NM = np.exp(scaled_NM)
    shares_NM = parts_NM / parts_NM.sum(axis=1, keepdims=True)
    own_N = logits_NM[np.arange(len(labels_N)), labels_N]
    return float(((shares_NM * logits_NM).sum(axis=1) - own_N).mean())
