"""Intervals of scores by the number of test images: of a share, of a mean of shares. Pure, in closed form.

Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American Statistical
Association 22, 1927, for a share; Zou and Donner, "Construction of confidence limits about effect measures: a general
approach", Statistics in Medicine 27, 2008, for a mean of independent shares from the limits of each.

For macro F1 the variance is that of Takahashi, Yamamoto, Kuchiba and Koyama, "Confidence interval for micro-averaged F1 and
macro-averaged F1 scores", Applied Intelligence 52, 2022, and for an area under a ROC curve that of DeLong, DeLong and
Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic curves", Biometrics 44,
1988, on the bins of histograms. Both become Wilson's interval of a share of as many images as have that variance, as Korn
and Graubard do, "Confidence intervals for proportions with small expected number of positive counts estimated from survey
data", Survey Methodology 24, 1998: it stays between 0 and 1, and is no point where nothing or everything is right. An area's
is wider by what images of one bin leave open, whose order is not known: of a model that has hardly learnt, most are in few.

They tell how far a score may move with other test images of the same sites; of other seeds `fedplcc compare` tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fedplcc.shared.bounds import SCORE_BINS
from fedplcc.shared.scoring.class_scores import class_scores
from fedplcc.shared.scoring.histograms import areas
from fedplcc.shared.types import ScoreHistograms

CONFIDENCE = 0.95
"""Share of intervals that hold the true value."""
DIGITS = 12
"""Decimals of bounds; beyond them the order of additions tells."""
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of an interval of `CONFIDENCE`."""

    low: float
    high: float

    def __str__(self) -> str:
        """Return both in percent, as they stand after a score: [90.7, 92.4]."""
        return f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"


def share_interval(part: int, whole: int) -> Interval | None:
    """Return Wilson's interval of a share of independent images; None of none."""
    if not whole:
        return None
    return _wilson(part / whole, whole)


def _wilson(share: float, whole: float) -> Interval:
    """Return Wilson's interval of a share of so many images, which need be no whole number."""
    squared = _Z * _Z
    centre = (share + squared / (2 * whole)) / (1 + squared / whole)
    half = _Z / (1 + squared / whole) * math.sqrt(share * (1 - share) / whole + squared / (4 * whole * whole))
    low = 0.0 if share == 0 else centre - half
    high = 1.0 if share == 1 else centre + half
    return Interval(round(max(0.0, low), DIGITS), round(min(1.0, high), DIGITS))


def _interval_of_variance(value: float, variance: float, most: float) -> Interval:
    """Return the interval of a value between 0 and 1 with a variance.

    Args:
        variance: Its variance; 0 where every image is as the others.
        most: Number of images that it is taken for at most, and where it has no variance.
    """
    spread = value * (1 - value)
    number = min(most, spread / variance) if variance > 0 and spread > 0 else most
    return _wilson(min(max(value, 0.0), 1.0), number)


def mean_interval(values: Sequence[float], intervals: Sequence[Interval]) -> Interval | None:
    """Return the interval of the mean of independent values, each with its own; None of none."""
    count = len(values)
    if not count:
        return None
    mean = math.fsum(values) / count
    below, above = (
        math.sqrt(math.fsum(gap * gap for gap in gaps)) / count
        for gaps in (
            [value - each.low for value, each in zip(values, intervals, strict=True)],
            [each.high - value for value, each in zip(values, intervals, strict=True)],
        )
    )
    return Interval(round(max(0.0, mean - below), DIGITS), round(min(1.0, mean + above), DIGITS))


def accuracy_interval(correct_M: Sequence[int], total_M: Sequence[int]) -> Interval | None:
    """Return the interval of the accuracy over all classes; None without images."""
    return share_interval(sum(correct_M), sum(total_M))


def balanced_interval(correct_M: Sequence[int], total_M: Sequence[int]) -> Interval | None:
    """Return the interval of the balanced accuracy: of the mean recall of the classes that have images; None without any."""
    present = [(right, number) for right, number in zip(correct_M, total_M, strict=True) if number]
    found = [share_interval(right, number) for right, number in present]
    known = [each for each in found if each is not None]
    return mean_interval([right / number for right, number in present], known)


def macro_f1_interval(total_M: Sequence[int], confusion: Sequence[int]) -> Interval | None:
    """Return the interval of the macro F1; None without images.

    Args:
        total_M: Images of each class; those that were given no class are in no column.
        confusion: Images by true class (row) and predicted class (column), `[M * M]`, a row after the other.
    """
    num_classes, number = len(total_M), sum(total_M)
    value = class_scores(total_M, confusion).macro_f1
    if not number or value is None:
        return None
    sums = [total_M[label] + sum(confusion[label::num_classes]) for label in range(num_classes)]
    right = [confusion[label * (num_classes + 1)] for label in range(num_classes)]
    known = sum(1 for each in sums if each)
    # The gradient of a class's F1 by the share of a cell, as images are: 2 for what is right, less F1 for each side of it.
    own = [2 / each if each else 0.0 for each in sums]
    less = [2 * hits / each / each if each else 0.0 for hits, each in zip(right, sums, strict=True)]
    first, second = [0.0], [0.0]
    for true in range(num_classes):
        row = confusion[true * num_classes : (true + 1) * num_classes]
        for given, count in enumerate(row):
            change = (own[true] if given == true else 0.0) - less[true] - less[given]
            first.append(count * change)
            second.append(count * change * change)
        lost = total_M[true] - sum(row)
        first.append(-lost * less[true])
        second.append(lost * less[true] ** 2)
    variance = (math.fsum(second) - math.fsum(first) ** 2 / number) / known**2
    return _interval_of_variance(value, variance, _fewest(total_M))


def _fewest(total_M: Sequence[int]) -> float:
    """Return how many images a mean over classes is worth where each class is a share of its own: less than all."""
    present = [number for number in total_M if number]
    return len(present) ** 2 / math.fsum(1 / number for number in present)


def area_intervals(histograms: ScoreHistograms) -> list[Interval | None]:
    """Return the interval of each class's area under the ROC curve against all others; None where it has none."""
    found = zip(areas(histograms), _area_variances(histograms), strict=True)
    return [
        None
        if value is None or known is None
        else _widened(_interval_of_variance(value, known.variance, known.most), known.open)
        for value, known in found
    ]


def macro_area_interval(histograms: ScoreHistograms) -> Interval | None:
    """Return the interval of the mean of the classes' areas; None without any.

    The classes' areas are of the same images, and histograms do not say how they go together: the variance is the most that
    it can be, as if they went together wholly, and the interval no narrower than the true one.
    """
    values = [value for value in areas(histograms) if value is not None]
    known = [each for each in _area_variances(histograms) if each is not None]
    if not known:
        return None
    deviation = math.fsum(math.sqrt(each.variance) for each in known) / len(known)
    by_images = _interval_of_variance(math.fsum(values) / len(values), deviation**2, min(each.most for each in known))
    return _widened(by_images, math.fsum(each.open for each in known) / len(known))


def _widened(interval: Interval, by: float) -> Interval:
    return Interval(round(max(0.0, interval.low - by), DIGITS), round(min(1.0, interval.high + by), DIGITS))


class _AreaVariance(NamedTuple):
    """What is known of how far an area may be from the true one."""

    variance: float
    """Variance by the number of images."""
    most: float
    """Number of the class's images or of the others, which are fewer."""
    open: float
    """Half the share of pairs that are in one bin: how far the area of the probabilities themselves may be."""


def _area_variances(histograms: ScoreHistograms) -> list[_AreaVariance | None]:
    """Return this of each class; None where it has no area."""
    found: list[_AreaVariance | None] = []
    for begin in range(0, len(histograms.of_class), SCORE_BINS):
        own, others = (
            np.asarray(each[begin : begin + SCORE_BINS], float) for each in (histograms.of_class, histograms.of_others)
        )
        number, rest = float(own.sum()), float(others.sum())
        if not number or not rest:
            found.append(None)
            continue
        over = (np.cumsum(others) - others / 2) / rest  # share of the others that an image of a bin is put above
        under = 1 - (np.cumsum(own) - own / 2) / number
        area = float((own * over).sum() / number)
        parts = (
            float((counts * (place - area) ** 2).sum()) / max(size - 1, 1.0) / size
            for counts, place, size in ((own, over, number), (others, under, rest))
        )
        left_open = float((own * others).sum()) / number / rest / 2
        found.append(_AreaVariance(math.fsum(parts), min(number, rest), left_open))
    return found
