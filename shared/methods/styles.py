"""Styles: channel statistics of early features, of a client's images and of those of all clients together. Pure.

A part of every method, where `training.mix_style.statistics` is "federation": clients upload their styles beside their
update, the server pools them, and the next task brings the pooled ones back. Only moments travel: for each channel of three
places of a ResNet, the mean and the variance over images of the channel's mean, and of its standard deviation.

After Zhou, Konukoglu, "FedFA: Federated Feature Augmentation", ICLR 2023, https://arxiv.org/abs/2301.12995;
docs/algorithms.md, rule 24.4, says what differs.

Shape legend: C channels. An array of a place is `[2, 2, C]`: of the channel's mean and its deviation, the mean and the
variance over images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from shared.methods.maths import to_float32
from shared.methods.server_arrays import ArrayGroup, GroupSchema

STYLES = "styles"
"""Group of arrays of an update, and of the server."""
PLACES: Mapping[str, int] = MappingProxyType({"stem": 64, "stage1": 64, "stage2": 128})
"""Places by name, in the order of the features, with their channels."""
SCHEMA: GroupSchema = MappingProxyType({place: ("F32", (2, 2, width)) for place, width in PLACES.items()})
MAX_STATISTIC = 1e6
"""Largest size of an uploaded number."""


def style_fault(styles: ArrayGroup) -> str | None:
    """Return what is wrong with the values of a client's styles; None where nothing is. Their schema holds already."""
    for place, array in styles.items():
        largest = float(np.abs(array).max(initial=0.0))
        if largest > MAX_STATISTIC:
            return f"the styles of {place} reach {largest:.6g}, and {MAX_STATISTIC:g} is the most that they can be"
        if array[:, 1].min() < 0:
            return f"the styles of {place} have a variance of {array[:, 1].min():.6g}, and none is below 0"
        if array[1, 0].min() < 0:
            return f"the styles of {place} have a standard deviation of {array[1, 0].min():.6g}, and none is below 0"
    return None


def pooled(clients: Iterable[ArrayGroup]) -> ArrayGroup:
    """Return the styles of all clients' images, every client with the same weight.

    The mean is the mean of the clients' means; the variance is the mean of their variances plus the variance of their means.
    Clients are added in their order in float64, and each number is rounded once.

    Args:
        clients: Their styles, at least one.
    """
    count = 0
    firsts = {place: np.zeros((2, 2, width)) for place, width in PLACES.items()}
    squares = {place: np.zeros((2, width)) for place, width in PLACES.items()}
    for styles in clients:
        count += 1
        for place in PLACES:
            array: npt.NDArray[np.float64] = styles[place].astype(np.float64)
            firsts[place] += array
            squares[place] += array[:, 0] ** 2
    made = {}
    for place in PLACES:
        mean, variance = (firsts[place] / count).swapaxes(0, 1)
        between = np.maximum(squares[place] / count - mean**2, 0)
        made[place] = to_float32(np.stack((mean, variance + between), axis=1))
    return made
