"""Intervals of scores by the number of test images: of a share, of a mean of shares. Pure, in closed form.

Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American Statistical
Association 22, 1927, for a share; Zou and Donner, "Construction of confidence limits about effect measures: a general
approach", Statistics in Medicine 27, 2008, for a mean of independent shares from the limits of each.

They tell how far a score may move with other test images of the same sites; of other seeds `fedplcc compare` tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

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
    share, squared = part / whole, _Z * _Z
    centre = (share + squared / (2 * whole)) / (1 + squared / whole)
    half = _Z / (1 + squared / whole) * math.sqrt(share * (1 - share) / whole + squared / (4 * whole * whole))
    low = 0.0 if part == 0 else centre - half
    high = 1.0 if part == whole else centre + half
    return Interval(round(max(0.0, low), DIGITS), round(min(1.0, high), DIGITS))


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
