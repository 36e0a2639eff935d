"""Documents of rounds and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import ConfigDict, Field

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document, Sha256
from fedplcc.shared.reasons import Dropped
from fedplcc.shared.types import RoundPhase


class Blob(Document):
    """Reference to stored bytes."""

    sha256: Sha256
    size_bytes: int

    @classmethod
    def of(cls, blob: types.BlobRef) -> Self:
        """Return the document of a blob."""
        return cls.like(blob)


class PrototypeCounts(Document):
    """Numbers of prototypes of a round."""

    local: int
    """Uploaded by the cohort."""
    global_: int = Field(alias="global")
    """Made by the aggregator."""


class DroppedClient(Document):
    """A client of the cohort that the round continues without."""

    client_id: str
    reason: str
    """lost (not connected), silent (no progress), problem (it said that it cannot do its task) or quarantined."""
    detail: str
    """Sentence about it, for people."""

    @classmethod
    def of(cls, client_id: str, why: Dropped) -> Self:
        """Return the document of a client that a round dropped."""
        return cls(client_id=client_id, reason=why.reason.value, detail=why.detail)


class RoundMetrics(Document):
    """A line of metrics.jsonl: the results of a committed round. Equal federations give equal lines."""

    model_config = ConfigDict(extra="allow")

    round: int
    accuracy: dict[str, float | None] | None
    """Fraction of correct test samples by domain, with "mean" and "worst"; null without a report. Of the global model
    unless `accuracy_of` is "local". Null as a whole if the run's configuration does not evaluate the round."""
    accuracy_of: str | None = None
    """"local" if `accuracy` is that of the clients' own models: the run shares no model, or none whole, and its global model
    stays the first one, in whole or in part. Else null."""
    accuracy_local: dict[str, float | None] | None = None
    """As `accuracy`, of the clients' own models, each on its client's test set; null without own models, and if the round is
    not evaluated."""
    accuracy_alone: dict[str, float | None] | None = None
    """As `accuracy_local`, of models of each client's own images alone; null where the method makes none."""
    joining: dict[str, float] | None = None
    """What joining is worth to each client: the run's score of its own model minus that of its images alone."""
    accuracy_attacked: dict[str, dict[str, float | None]] | None = None
    """As `accuracy`, under each attack of the run's configuration, by attack; null without attacks, and if the round is not
    evaluated."""
    accuracy_validation: dict[str, float | None] | None = None
    """As `accuracy`, on training images that clients set aside; null where none do, and if the round is not evaluated."""
    balanced_accuracy: dict[str, float | None] | None = None
    """As `accuracy`, the mean of the recalls of the classes; not null where it is the round's score: test images of classes
    are uneven, or the configuration says so (`evaluation.score`)."""
    balanced_accuracy_validation: dict[str, float | None] | None = None
    """As `balanced_accuracy`, on validation images."""
    macro_f1: dict[str, float | None] | None = None
    """As `accuracy`, the mean of the F1 of the classes; null unless each report has a confusion matrix."""
    auc: dict[str, float | None] | None = None
    """As `accuracy`, the mean of the areas under the classes' ROC curves, one against the rest; null unless each report has
    histograms (`evaluation.histograms`)."""
    calibration_error: dict[str, float | None] | None = None
    """As `auc`, the expected calibration error; "worst" is the largest one."""
    unfound: list[int] = Field([])
    """Classes of which no test image was given the right class, of those with at least five test images; the first 64."""
    loss: dict[str, float]
    """Mean training loss by term."""
    prototypes: PrototypeCounts
    num_examples: int
    cohort: list[str]
    dropped: list[str] = Field([])
    """Clients of the cohort whose update or report these values lack, sorted."""
    model_sha256: Sha256
    prototypes_sha256: Sha256


class Round(Document):
    """One round of a run."""

    round: int
    """Its number; round 0 makes the first model."""
    phase: RoundPhase
    cohort: list[str]
    """Its clients, sorted."""
    dropped: list[DroppedClient]
    """Clients that it continued without, by id; in an open round, clients that it does not wait for."""
    model: Blob | None
    """Global model after the round; null until it is aggregated."""
    prototypes: Blob | None
    """Global prototypes after the round; null until they are aggregated."""
    metrics: RoundMetrics | None
    """Its line of metrics.jsonl; null until it has committed, and for round 0."""

    @classmethod
    def of(cls, current: types.Round) -> Self:
        """Return the document of a round."""
        return cls.like(
            current,
            round=current.number,
            dropped=[DroppedClient.of(*entry) for entry in sorted(current.dropped.items())],
            model=Blob.of(current.model) if current.model else None,
            prototypes=Blob.of(current.prototypes) if current.prototypes else None,
            metrics=RoundMetrics.model_validate_json(current.results_json) if current.results_json else None,
        )


class RoundPage(Document):
    """Rounds of a run in order."""

    rounds: list[Round]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""

    @classmethod
    def of(cls, rounds: Sequence[types.Round], next_page_token: str | None) -> Self:
        """Return a page of rounds."""
        return cls(rounds=[Round.of(current) for current in rounds], next_page_token=next_page_token)
