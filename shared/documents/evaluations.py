"""Documents of clients' evaluation reports."""

from __future__ import annotations

from typing import Self

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document
from fedplcc.shared.scoring.class_scores import class_scores
from fedplcc.shared.scoring.histograms import areas, calibration_error, macro_area, reliability


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
        return cls.like(class_scores(entry.total, entry.confusion))


class ReliabilityBin(Document):
    """Samples of which the largest probability lies in one bin of a reliability diagram."""

    confidence: float
    """Mean of these probabilities."""
    accuracy: float
    """Share of the samples that were predicted correctly."""
    num_examples: int
    """Number of samples."""


class Calibration(Document):
    """Probabilities of one evaluation set, fractions."""

    auc: list[float | None]
    """Area under the ROC curve of each class against all others, in the order of the run's classes; null of a class without
    one or the other."""
    macro_auc: float | None
    """Mean of `auc` over the classes that have one."""
    calibration_error: float | None
    """Expected calibration error, over the bins of `reliability`."""
    reliability: list[ReliabilityBin]
    """Bins that have samples, by confidence; of 15 of equal width."""

    @classmethod
    def of(cls, histograms: types.ScoreHistograms) -> Self:
        """Return the document of a set's histograms."""
        bins = reliability(histograms)
        return cls(
            auc=areas(histograms),
            macro_auc=macro_area(histograms),
            calibration_error=calibration_error(bins),
            reliability=[ReliabilityBin.like(each) for each in bins],
        )


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
    calibration: Calibration | None = None
    """What follows from the probabilities of the test set and of validation images; null unless the run's configuration has
    evaluation.histograms."""

    @classmethod
    def of(cls, entry: types.EvaluationCounts) -> Self:
        """Return the document of one evaluation set's counts."""
        size = len(entry.total)
        cells = entry.confusion
        rows = [list(cells[start : start + size]) for start in range(0, len(cells), size)] if cells else None
        return cls.like(
            entry,
            confusion=rows,
            scores=ClassScores.of(entry) if cells else None,
            calibration=None if entry.histograms is None else Calibration.of(entry.histograms),
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
        return cls.like(evaluation, round=round_number, counts=counts)


class EvaluationPage(Document):
    """Reports by round and client."""

    evaluations: list[Evaluation]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""
