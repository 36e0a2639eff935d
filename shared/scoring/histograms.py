"""Histograms of a model's probabilities in fixed bins, and what follows from them: areas under ROC curves, calibration.

Pure. A client reports so many numbers whatever its images are: no probability of one image leaves it. A probability p is
counted in bins of equal width of 1 / (1 + ((1 - p) / p)^(1/8)), which are narrow near 0 and 1, where the probabilities of a
trained model lie; the largest probability of an image, its confidence, in bins of equal width.

Shape legend: N samples, M classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedplcc.shared.bounds import CONFIDENCE_BINS, SCORE_BINS
from fedplcc.shared.types import FloatArray, IntArray, Reliability, ScoreHistograms

RELIABILITY_BINS = 15
"""Bins of a reliability diagram and of the calibration error, those of Guo et al. (ICML 2017)."""


def bins_of(logits_NM: FloatArray) -> IntArray:
    """Return the bin of each class's probability and, last, that of the confidence, `[N, M + 1]` int16.

    They are 0 for a sample whose logits are not all finite.
    """
    is_sound_N1 = np.isfinite(logits_NM).all(axis=1, keepdims=True)
    shifted_NM = np.where(is_sound_N1, logits_NM, 0.0).astype(np.float64)
    shifted_NM -= shifted_NM.max(axis=1, keepdims=True)
    parts_NM = np.exp(shifted_NM)
    # Summed without the class itself: 1 - p would lose what is left beside a probability near 1.
    others_NM = np.stack([np.delete(parts_NM, label, axis=1).sum(axis=1) for label in range(parts_NM.shape[1])], axis=1)
    with np.errstate(divide="ignore"):
        bins_NM = (SCORE_BINS / (1.0 + (others_NM / parts_NM) ** 0.125)).astype(np.int16)
    confidence_N1 = (CONFIDENCE_BINS / parts_NM.sum(axis=1, keepdims=True)).astype(np.int16)  # the largest part is 1
    found = np.concatenate(
        [np.minimum(bins_NM, SCORE_BINS - 1), np.minimum(confidence_N1, CONFIDENCE_BINS - 1)], axis=1
    )
    return np.where(is_sound_N1, found, 0).astype(np.int16)


def histograms_of(bins_NM: IntArray, labels_N: IntArray, predicted_N: IntArray, num_classes: int) -> ScoreHistograms:
    """Return the histograms of samples.

    Args:
        bins_NM: See `bins_of`, `[N, M + 1]`.
        predicted_N: Predicted classes; -1 for none.
        num_classes: M.
    """

    def by_class(is_of_class: bool) -> tuple[int, ...]:
        found: list[int] = []
        for label in range(num_classes):
            chosen = bins_NM[(labels_N == label) == is_of_class, label]
            found += np.bincount(chosen, minlength=SCORE_BINS).tolist()
        return tuple(found)

    def confidences(is_chosen_N: IntArray | slice) -> tuple[int, ...]:
        return tuple(np.bincount(bins_NM[is_chosen_N, num_classes], minlength=CONFIDENCE_BINS).tolist())

    return ScoreHistograms(
        of_class=by_class(True),
        of_others=by_class(False),
        confidence=confidences(slice(None)),
        confidence_correct=confidences(predicted_N == labels_N),
    )


def fault_of(histograms: ScoreHistograms, correct_M: Sequence[int], total_M: Sequence[int]) -> str | None:
    """Return what is wrong with reported histograms beside the counts that they are reported with; None if nothing is."""
    num_classes, number = len(total_M), sum(total_M)
    sizes = (len(histograms.of_class), len(histograms.of_others))
    if sizes != (num_classes * SCORE_BINS,) * 2:
        return f"have {sizes[0]} and {sizes[1]} bins of scores, not {num_classes * SCORE_BINS}"
    sizes = (len(histograms.confidence), len(histograms.confidence_correct))
    if sizes != (CONFIDENCE_BINS,) * 2:
        return f"have {sizes[0]} and {sizes[1]} bins of confidence, not {CONFIDENCE_BINS}"
    if min(*histograms.of_class, *histograms.of_others, *histograms.confidence_correct) < 0:
        return "have a negative count"
    if any(right > count for right, count in zip(histograms.confidence_correct, histograms.confidence, strict=True)):
        return "have more correct predictions of a confidence than predictions"
    for label, total in enumerate(total_M):
        place = slice(label * SCORE_BINS, (label + 1) * SCORE_BINS)
        if (sum(histograms.of_class[place]), sum(histograms.of_others[place])) != (total, number - total):
            return f"have other numbers of samples of class {label} than were tested"
    if (sum(histograms.confidence), sum(histograms.confidence_correct)) != (number, sum(correct_M)):
        return "have another number of predictions, or of correct ones, than the counts"
    return None


def added(histograms: Iterable[ScoreHistograms]) -> ScoreHistograms:
    """Return the sum of histograms of equal sizes; there is one at least."""
    known = list(histograms)
    sums = {
        name: tuple(map(sum, zip(*(getattr(each, name) for each in known), strict=True)))
        for name in ("of_class", "of_others", "confidence", "confidence_correct")
    }
    return ScoreHistograms(**sums)


def areas(histograms: ScoreHistograms) -> list[float | None]:
    """Return the area under the ROC curve of each class against all others; None of a class without one or the other.

    It is the share of pairs of a sample of the class and one of another that the class's probability puts in the right
    order. A pair in one bin counts half, so that the area differs from that of the probabilities by at most half the share
    of such pairs.
    """
    num_classes = len(histograms.of_class) // SCORE_BINS
    found: list[float | None] = []
    for label in range(num_classes):
        place = slice(label * SCORE_BINS, (label + 1) * SCORE_BINS)
        own, others = (np.asarray(each[place], float) for each in (histograms.of_class, histograms.of_others))
        pairs = own.sum() * others.sum()
        below = np.cumsum(others) - others
        found.append(float((own * (below + others / 2)).sum() / pairs) if pairs else None)
    return found


def macro_area(histograms: ScoreHistograms) -> float | None:
    """Return the mean of the classes' `areas`, one against the rest; None without any."""
    known = [value for value in areas(histograms) if value is not None]
    return sum(known) / len(known) if known else None


def reliability(histograms: ScoreHistograms) -> list[Reliability]:
    """Return accuracy beside mean confidence in each bin of a reliability diagram that has predictions.

    A confidence is taken as the middle of its own narrower bin.
    """
    each = CONFIDENCE_BINS // RELIABILITY_BINS
    found = []
    for begin in range(0, CONFIDENCE_BINS, each):
        counts = histograms.confidence[begin : begin + each]
        if number := sum(counts):
            middles = sum(count * (begin + place + 0.5) for place, count in enumerate(counts)) / CONFIDENCE_BINS
            right = sum(histograms.confidence_correct[begin : begin + each])
            found.append(Reliability(confidence=middles / number, accuracy=right / number, num_examples=number))
    return found


def calibration_error(bins: Sequence[Reliability]) -> float | None:
    """Return the expected calibration error (docs/algorithms.md, rule 12.5); None without predictions."""
    number = sum(each.num_examples for each in bins)
    if not number:
        return None
    return sum(each.num_examples * abs(each.accuracy - each.confidence) for each in bins) / number
