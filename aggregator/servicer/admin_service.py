"""AdminService: certificates, invitations, keys and the audit. Each part is a class of its own, mixed in here."""

from __future__ import annotations

from collections.abc import Callable

from aggregator.identity.admissions import Admissions
from aggregator.servicer.certificate_calls import CertificateCalls


class AdminServicer(CertificateCalls):
    """Servicer of the RPCs of administrators and of holders of certificates."""

    def __init__(self, admissions: Admissions, enrolment_sha256: Callable[[], bytes]) -> None:
        """Prepare.

        Args:
            admissions: Use cases of invitations and certificates.
            enrolment_sha256: Returns the SHA-256 of the certificate at the port of EnrolService.
        """
        self._admissions, self._enrolment_sha256 = admissions, enrolment_sha256
