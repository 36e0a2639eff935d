"""Documents of clients' evaluation reports."""

from __future__ import annotations

from typing import Self

from shared import types
from shared.documents.document import Document


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


class Evaluation(Document):
    """The report of one client for one round."""

    round: int
    client_id: str
    domain: str
    counts: list[EvaluationCounts]

    @classmethod
    def of(cls, round_number: int, evaluation: types.Evaluation) -> Self:
        """Return the document of a report."""
        counts = [
            EvaluationCounts(
                set_name=entry.set_name, model=entry.model, correct=list(entry.correct), total=list(entry.total)
            )
            for entry in evaluation.counts
        ]
        return cls(round=round_number, client_id=evaluation.client_id, domain=evaluation.domain, counts=counts)


class EvaluationPage(Document):
    """Reports by round and client."""

    evaluations: list[Evaluation]
    next_after: int | None
    """`after` of the next page; null at the end."""
