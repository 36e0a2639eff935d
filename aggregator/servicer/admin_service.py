"""AdminService: certificates, invitations, keys and the audit. Keys and the audit are classes of their own, mixed in."""

from __future__ import annotations

from aggregator.identity.audit import Audit
from aggregator.servicer.audit_calls import AuditCalls


class AdminServicer(AuditCalls):
    """Servicer of the RPCs of administrators and of holders of certificates.

    Each part is a mixin that takes its use cases from an attribute, which `__init__` sets.
    """

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
