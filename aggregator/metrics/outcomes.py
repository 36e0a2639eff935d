"""What became of what clients sent: updates and evaluation reports, taken or refused, each refusal under its reason."""

from __future__ import annotations

from typing import Literal

from aggregator.metrics.families import Families
from shared import errors

STRANGERS = (errors.Unauthenticated, errors.NotAMember, errors.ClientIdTaken, errors.RunNotFound)
"""Reasons for which anything is refused from who has no say in the run."""
REPORT_REFUSALS = (
    errors.MalformedUpdate,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.EarlyReport,
    errors.LateReport,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *STRANGERS,
)
"""Reasons for which a report is refused."""
REFUSALS = (
    errors.MalformedUpdate,
    errors.UpdateNormExceeded,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.LateUpdate,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *STRANGERS,
    errors.UpdateConflict,
    errors.BlobCorrupt,
    errors.BlobNotFound,
    errors.BlobTooLarge,
    errors.ChunkTooLarge,
    errors.ChunkOutOfOrder,
)
"""Reasons for which an update, or a blob of one, is refused."""
WRONG_IN_THEMSELVES = (
    errors.MalformedUpdate,
    errors.UpdateNormExceeded,
    errors.UpdateConflict,
    errors.BlobCorrupt,
    errors.BlobTooLarge,
)
"""Reasons for which an update is refused that speak of what it is; the others speak of when it came, and from whom."""

What = Literal["update", "report"]
Taken = Literal["accepted", "duplicate"]


class Outcomes:
    """Updates and reports by outcome."""

    def __init__(self, families: Families) -> None:
        updates = families.counter(
            "client_updates_total", "Updates by outcome: taken, or the reason why not.", "outcome"
        )
        reports = families.counter(
            "client_reports_total", "Evaluation reports by outcome: taken, or the reason why not.", "outcome"
        )
        self._counted = {"update": (updates, REFUSALS), "report": (reports, REPORT_REFUSALS)}
        for counted, refusals in self._counted.values():
            for outcome in ("accepted", "duplicate", *(refusal.reason.lower() for refusal in refusals)):
                counted.labels(outcome)

    def taken(self, what: What, outcome: Taken) -> None:
        """Count an update or a report that was taken, or had been already."""
        self._counted[what][0].labels(outcome).inc()

    def refused(self, error: errors.FedplccError, *, what: What) -> bool:
        """Count an update, a blob of one, or a report that was refused; says whether that is what the error means."""
        counted, kinds = self._counted[what]
        if not isinstance(error, kinds):
            return False  # a disk that is away, or a stream that a newer one took over
        counted.labels(error.reason.lower()).inc()
        return True
