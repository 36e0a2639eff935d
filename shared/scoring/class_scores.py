"""Scores of each class by a confusion matrix: recall, precision, specificity, F1. Pure; scikit-learn's, with None for 0 / 0.

A sample without a predicted class is one of its class that is not found, and no false one of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedplcc.shared.scoring.scores import recalls


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScores:
    """Scores of M classes by one confusion matrix, fractions.

    Attributes:
        recall: Of a class's samples those that were given it (sensitivity).
        precision: Of the samples that were given a class those that are of it.
        specificity: Of the samples of other classes those that were not given the class.
        f1: Harmonic mean of precision and recall; 0 where nothing is right.
        macro_f1: Mean of `f1` over the classes that have samples or were given to some; None without any.
    """

    recall: tuple[float | None, ...]
    precision: tuple[float | None, ...]
    specificity: tuple[float | None, ...]
    f1: tuple[float | None, ...]
    macro_f1: float | None


def class_scores(total_M: Sequence[int], confusion: Sequence[int]) -> ClassScores:
    """Return the scores of each class.

    Args:
        confusion: Samples by true class (row) and predicted class (column), `[M * M]`, a row after the other.
    """
    num_classes, number = len(total_M), sum(total_M)
    right = [confusion[label * (num_classes + 1)] for label in range(num_classes)]
    given = [sum(confusion[label::num_classes]) for label in range(num_classes)]
    f1 = tuple(_share(2 * hits, of + named) for hits, of, named in zip(right, total_M, given, strict=True))
    known = [value for value in f1 if value is not None]
    return ClassScores(
        recall=tuple(recalls(right, total_M)),
        precision=tuple(map(_share, right, given)),
        specificity=tuple(
            _share(number - of - (named - hits), number - of)
            for hits, of, named in zip(right, total_M, given, strict=True)
        ),
        f1=f1,
        macro_f1=sum(known) / len(known) if known else None,
    )


def pooled(matrices: Iterable[Sequence[int]]) -> list[int] | None:
    """Return the sum of confusion matrices; None of none, or where one is empty: a sum would say less than there is."""
    known = list(matrices)
    return [sum(cells) for cells in zip(*known, strict=True)] if known and all(known) else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
