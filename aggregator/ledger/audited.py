"""Protocol of the audit, as the coordinator sees it; identity/audit.py keeps it."""

from __future__ import annotations

from typing import Protocol

from fedplcc.aggregator.ledger.changes import Write
from fedplcc.shared.types import AuditHead


class AuditLog(Protocol):
    """Records who changed what; the caller is that of the present call."""

    def change(self, method: str, target: str, request_id: str = "") -> Write:
        """Return what adds the record of a change to the change's transaction."""

    def change_alone(self, method: str, target: str) -> None:
        """Write the record of a change that no transaction makes; called just before the change."""

    def refused_here(self, method: str, target: str, reason: str) -> None:
        """Count a refusal that the caller met or reports; waits for nothing."""

    def head(self) -> AuditHead:
        """Return the last entry that is durable."""
