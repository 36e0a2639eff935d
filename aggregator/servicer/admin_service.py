"""AdminService: certificates, invitations, keys and the audit. Each part is a class of its own, mixed in here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.identity.audit import Audit
from fedplcc.aggregator.identity.keys import Keys
from fedplcc.aggregator.servicer.audit_calls import AuditCalls
from fedplcc.aggregator.servicer.certificate_calls import CertificateCalls
from fedplcc.aggregator.servicer.key_calls import KeyCalls
from fedplcc.aggregator.servicer.sign_on_calls import SignOnCalls

if TYPE_CHECKING:
    from fedplcc.aggregator.identity.sign_on.sign_ons import SignOns


class AdminServicer(CertificateCalls, KeyCalls, SignOnCalls, AuditCalls):
    """Servicer of the RPCs of administrators and of holders of certificates."""

    def __init__(
        self,
        admissions: Admissions,
        enrolment_sha256: Callable[[], bytes],
        keys: Keys,
        federation: str,
        roots_pem: Callable[[], bytes],
        audit: Audit,
        sign_ons: SignOns | None = None,
    ) -> None:
        """Prepare.

        Args:
            admissions: Use cases of invitations and certificates.
            enrolment_sha256: Returns the SHA-256 of the certificate at the port of EnrolService.
            sign_ons: Use cases of single sign-on; None where no provider is set.
        """
        self._admissions, self._enrolment_sha256 = admissions, enrolment_sha256
        self._keys, self._audit, self._sign_ons = keys, audit, sign_ons
        self._federation, self._roots_pem = federation, roots_pem
