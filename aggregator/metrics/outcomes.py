"""Metrics of updates and evaluation reports by outcome: accepted, duplicate, or the reason of a refusal."""

from __future__ import annotations

from typing import Literal

from fedplcc.aggregator.metrics.families import Families
from fedplcc.shared import errors

SENDER_REFUSALS = (errors.Unauthenticated, errors.NotAMember, errors.ClientIdTaken, errors.RunNotFound)
"""Refusals of any message whose sender has no part in the run."""
REPORT_REFUSALS = (
    errors.MalformedUpdate,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.EarlyReport,
    errors.LateReport,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *SENDER_REFUSALS,
)
"""Refusals of a report."""
REFUSALS = (
    errors.MalformedUpdate,
    errors.UpdateNormExceeded,
    errors.RunEnded,
    errors.StaleRound,
    errors.FutureRound,
    errors.LateUpdate,
    errors.NotInCohort,
    errors.ClientQuarantined,
    *SENDER_REFUSALS,
    errors.UpdateConflict,
    errors.BlobCorrupt,
    errors.BlobNotFound,
    errors.BlobTooLarge,
    errors.ChunkTooLarge,
)
"""Refusals of an update, or of a blob of one."""
TRANSFER_STATES = (errors.ChunkOutOfOrder, errors.BlobIncomplete, errors.UploadSuperseded)
"""Answers that say where an upload stands. Repeated calls of an honest client get them too: they refuse nothing."""
CONTENT_REFUSALS = (
    errors.MalformedUpdate,
    errors.UpdateNormExceeded,
    errors.UpdateConflict,
    errors.BlobCorrupt,
    errors.BlobTooLarge,
)
"""Refusals of an update for its content; other refusals concern its time or its sender."""

What = Literal["update", "report"]
Taken = Literal["accepted", "duplicate"]


class Outcomes:
    """Metrics of updates and reports by outcome."""

    def __init__(self, families: Families) -> None:
        updates = families.counter(
            "client_updates_total", "Updates by outcome: accepted, duplicate, or the reason of a refusal.", "outcome"
        )
        reports = families.counter(
            "client_reports_total", "Evaluation reports by outcome: accepted, or the reason of a refusal.", "outcome"
        )
        self._counted = {"update": (updates, REFUSALS), "report": (reports, REPORT_REFUSALS)}
        for counted, refusals in self._counted.values():
            for outcome in ("accepted", "duplicate", *(refusal.reason.lower() for refusal in refusals)):
                counted.labels(outcome)

    def taken(self, what: What, outcome: Taken) -> None:
        """Count an accepted update or report, or a repetition of one."""
        self._counted[what][0].labels(outcome).inc()

    def refused(self, error: errors.FedplccError, *, what: What) -> bool:
        """Count a refused update (or a blob of one) or report; returns whether the error is such a refusal."""
        counted, kinds = self._counted[what]
        if not isinstance(error, kinds) or isinstance(error, TRANSFER_STATES):
            return False  # or a failure of the disk
        counted.labels(error.reason.lower()).inc()
        return True
