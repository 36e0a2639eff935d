"""Documents of clients' evaluation reports."""

from __future__ import annotations

from typing import Self

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document


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
