"""Metrics of members: ends of certificates, refusals by reason, open invitations."""

from __future__ import annotations

from fedplcc.aggregator.metrics.families import Families
from fedplcc.shared import errors
from fedplcc.shared.process.certificate_metrics import CertificateMetrics
from fedplcc.shared.process.metrics import OTHER

REFUSALS = (
    errors.Unauthenticated,
    errors.CertificateExpired,
    errors.CertificateRevoked,
    errors.KeyInvalid,
    errors.Forbidden,
    errors.RoleForbidden,
    errors.IdentityMismatch,
    errors.ScopeMissing,
    errors.InvitationInvalid,
    errors.InvitationUsed,
    errors.CodeNotAllowed,
    errors.WeightsMissing,
    errors.ResourceExhausted,
    errors.TooManyCalls,
    errors.TooManyOpenRuns,
    errors.BlobTooLarge,
    errors.ChunkTooLarge,
    errors.Overloaded,
)
"""Refusals that concern who calls, what it may and what it has used up; others share the label `other`."""


class MemberMetrics:
    """Metrics of who belongs to the federation, and of who was refused."""

    def __init__(self, families: Families) -> None:
        self._refusals = families.counter(
            "refusals_total", "Calls refused for what their caller is, may or has used up, by reason.", "reason"
        )
        self._invitations = families.gauge("invitations_open", "Invitations that admit somebody.")
        self.certificates = CertificateMetrics(families.registry)
        self._reasons = frozenset(refusal.reason.lower() for refusal in REFUSALS)
        for reason in (*sorted(self._reasons), OTHER):
            self._refusals.labels(reason)

    def refused(self, reason: str, count: int = 1) -> None:
        """Count refusals of one kind; any thread may call this."""
        known = reason.lower()
        self._refusals.labels(known if known in self._reasons else OTHER).inc(count)

    def invited(self, count: int) -> None:
        """Set the number of open invitations."""
        self._invitations.set(count)
