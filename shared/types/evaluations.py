"""Reports of evaluations: correct and total predictions by class of a set under a model, and the names of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GLOBAL_MODEL = "global"
"""Name of the round's global model in a report."""
LOCAL_MODEL = "local"
"""Name of the client's own model, of its last committed update, in a report."""
ALONE_MODEL = "alone"
"""Name of the model that a client has of its own images alone, in a report: what joining is worth is measured by it."""
POOLED_MODEL = "pooled"
"""Name of the model of all clients' images together: a simulation has one, and no client."""
TEST_SET, VALIDATION_SET = "test", "validation"
"""Name of a client's test set in a report."""
HISTOGRAM_SETS = (TEST_SET, VALIDATION_SET)
"""Sets whose reports may have histograms."""
BALANCED_SET = "all"
"""Name of a client's part of the whole test set in a report of a run with stages, where its data are a part of a set."""


def stage_set(stage: int) -> str:
    """Return the name of a client's test images of a stage: "stage-1"."""
    return f"stage-{stage}"


def own_set(set_name: str) -> str:
    """Return the name of a set on which a client chooses among its own classes: "test/own"."""
    return f"{set_name}/own"


def attacked_set(attack: str) -> str:
    """Return the name of a client's test set under an attack: "test/fgsm"."""
    return f"{TEST_SET}/{attack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistograms:
    """Samples of an evaluation set by the probabilities that the model gives them; see shared/scoring/histograms.py.

    Attributes:
        of_class: Samples of each class by the bin of that class's probability, `[M * SCORE_BINS]`, class by class.
        of_others: Samples of all other classes by the bin of that class's probability, likewise.
        confidence: Samples by the bin of their largest probability, `[CONFIDENCE_BINS]`.
        confidence_correct: Those of them that were predicted correctly.
    """

    of_class: tuple[int, ...]
    of_others: tuple[int, ...]
    confidence: tuple[int, ...]
    confidence_correct: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Samples of which the largest probability lies in one bin of a reliability diagram.

    Attributes:
        accuracy: Share of the samples that were predicted correctly.
        num_examples: Number of samples, at least one.
    """

    confidence: float
    accuracy: float
    num_examples: int


@dataclass(frozen=True, slots=True)
class EvaluationCounts:
    """Correct and total predictions per class of one evaluation set under the global, the local or the alone model.

    Attributes:
        confusion: Samples of each class by the class that the model predicted, `[M * M]`: a row for each true class, one
            after the other. Empty unless the run asks for it. A sample without a predicted class is in no column.
        histograms: Probabilities of a set whose classes are predicted by logits; None unless the run asks for them.
    """

    set_name: str
    model: str
    correct: tuple[int, ...]
    total: tuple[int, ...]
    confusion: tuple[int, ...] = ()
    histograms: ScoreHistograms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One client's report for one round, on the global model and, if the method has one, on the client's own."""

    client_id: str
    domain: str
    counts: tuple[EvaluationCounts, ...]
    timings: Mapping[str, float] = field(default_factory=dict)
