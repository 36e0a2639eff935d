"""Documents of clients' evaluation reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Self

from fedplcc.shared import types
from fedplcc.shared.class_scores import class_scores
from fedplcc.shared.documents.document import Document


class ClassScores(Document):
    """Scores of each class, fractions in the order of the run's classes; null for 0 / 0."""

    recall: list[float | None]
    """Of a class's samples those that were given it (sensitivity)."""
    precision: list[float | None]
    """Of the samples that were given a class those that are of it."""
    specificity: list[float | None]
    """Of the samples of other classes those that were not given the class."""
    f1: list[float | None]
    """Harmonic mean of precision and recall."""
    macro_f1: float | None
    """Mean of `f1` over the classes that have samples or were given to some."""

    @classmethod
    def of(cls, entry: types.EvaluationCounts) -> Self:
        """Return the document of the scores of a set that has a confusion matrix."""
        return cls(**asdict(class_scores(entry.total, entry.confusion)))


class EvaluationCounts(Document):
    """Correct and total predictions per class of one evaluation set."""

    set_name: str
    """The evaluation set; "test" unless the client has others."""
    model: str
    """The evaluated model: "global" or "local"."""
    correct: list[int]
    """Correct predictions per class, in the order of the run's classes."""
    total: list[int]
    """Samples per class, in the order of the run's classes."""
    confusion: list[list[int]] | None = None
    """Samples by true class (row) and predicted class (column), in the order of the run's classes; null unless the run's
    configuration has evaluation.confusion. A sample without a predicted class is in no column."""
    scores: ClassScores | None = None
    """Scores of each class by `confusion`; null without it."""

    @classmethod
    def of(cls, entry: types.EvaluationCounts) -> Self:
        """Return the document of one evaluation set's counts."""
        size = len(entry.total)
        cells = entry.confusion
        rows = [list(cells[start : start + size]) for start in range(0, len(cells), size)] if cells else None
        return cls(
            set_name=entry.set_name,
            model=entry.model,
            correct=list(entry.correct),
            total=list(entry.total),
            confusion=rows,
            scores=ClassScores.of(entry) if cells else None,
        )


class Evaluation(Document):
    """The report of one client for one round."""

    round: int
    client_id: str
    domain: str
    counts: list[EvaluationCounts]

    @classmethod
    def of(cls, round_number: int, evaluation: types.Evaluation) -> Self:
        """Return the document of a report."""
        counts = [EvaluationCounts.of(entry) for entry in evaluation.counts]
        return cls(round=round_number, client_id=evaluation.client_id, domain=evaluation.domain, counts=counts)


class EvaluationPage(Document):
    """Reports by round and client."""

    evaluations: list[Evaluation]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""
