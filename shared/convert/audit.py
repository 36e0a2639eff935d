"""Messages of the audit."""

from __future__ import annotations

from fedplcc.shared.convert.reading.fields import at_least, bounded_text, malformed, message_like
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2
from fedplcc.shared.identity.audit_chain import AuditEntry

YEAR_10000 = 253_402_300_800.0
"""Seconds since the epoch at which years have five digits."""


def audit_entry_to_proto(entry: AuditEntry) -> admin_service_pb2.AuditEntry:
    """Return the message of an entry."""
    return message_like(admin_service_pb2.AuditEntry, entry)


def audit_entry_from_proto(message: admin_service_pb2.AuditEntry) -> AuditEntry:
    """Return the entry of a message."""
    texts = {
        name: bounded_text(name, getattr(message, name))
        for name in (
            "caller",
            "credential",
            "method",
            "target",
            "outcome",
            "reason",
            "address",
            "request_id",
            "hash",
        )
    }
    return AuditEntry(
        number=at_least(1, "number", message.number),
        time=_time_of(message.time),
        count=at_least(1, "count", message.count),
        **texts,
    )


def _time_of(seconds: float) -> float:
    if not 0.0 <= seconds < YEAR_10000:
        raise malformed("time", f"{seconds} s is no time")
    return seconds
