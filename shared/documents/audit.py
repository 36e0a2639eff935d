"""Documents of the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from fedplcc.shared.documents.document import Document, Sha256, utc_time
from fedplcc.shared.identity import audit_chain


class AuditEntry(Document):
    """A change that somebody made, or refusals of one caller for one reason."""

    number: int
    """Place in the chain, from 1, without gaps."""
    time: datetime
    caller: str
    """client:NAME, gateway:NAME, key:ID, owner, anyone (without certificates and keys), nobody, or others."""
    credential: str | None
    """Serial of the certificate or id of the key."""
    method: str | None
    """What was called, for instance "CreateRun"; null for refusals of many callers."""
    target: str | None
    """Run, client, key or invitation; a client of a run as RUN/CLIENT."""
    outcome: str
    """done or refused."""
    reason: str | None
    """Reason of a refusal."""
    address: str | None
    """From where."""
    request_id: str | None
    count: int
    """How many equal refusals; 1 if done."""
    hash: Sha256
    """SHA-256 of the hash before it and of this entry."""

    @classmethod
    def of(cls, entry: audit_chain.AuditEntry) -> Self:
        """Return the document of an entry."""
        optional = ("credential", "method", "target", "reason", "address", "request_id")
        return cls.like(entry, time=utc_time(entry.time), **{name: getattr(entry, name) or None for name in optional})


class AuditPage(Document):
    """Entries of the audit, in order."""

    entries: list[AuditEntry]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""

    @classmethod
    def of(cls, entries: Sequence[audit_chain.AuditEntry], next_page_token: str | None) -> Self:
        """Return a page of entries."""
        return cls(entries=[AuditEntry.of(entry) for entry in entries], next_page_token=next_page_token)
