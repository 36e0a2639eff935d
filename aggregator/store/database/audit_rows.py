"""Rows of the audit, and the reads and writes of them that are mixed into the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from sqlalchemy import Connection, insert, select

from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader
from fedplcc.shared.identity.audit_chain import DONE, EMPTY, AuditEntry, AuditHead, AuditRecord, chained, head_of
from fedplcc.shared.types import RunStatus

_LAST = select(schema.audit.c.number, schema.audit.c.hash).order_by(schema.audit.c.number.desc()).limit(1)
_ADD = insert(schema.audit)


class _Writer(Protocol):
    _connection: Connection
    _audit_head: AuditHead | None


class AuditReads:
    """Reads of a `Store` (see base.py) about the audit."""

    def list_audit(self: Reader, *, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        table = schema.audit
        query = select(table).where(table.c.number > after).order_by(table.c.number).limit(limit)
        with self._reading() as connection:
            try:
                found = connection.execute(query).all()
            except rows.UNREADABLE:
                # The values of one row are none of their columns: each is read by itself.
                numbers = connection.execute(query.with_only_columns(table.c.number)).scalars().all()
                return [_alone(connection, number) for number in numbers]
            return [AuditEntry(**row._mapping) for row in found]

    def key_makers(self: Reader) -> dict[str, str]:
        audit = schema.audit.c
        query = select(audit.target, audit.caller).where(audit.method == "CreateKey", audit.outcome == DONE)
        with self._reading() as connection:
            return {target: caller for target, caller in connection.execute(query)}

    def open_run_creators(self: Reader) -> dict[str, str]:
        audit, runs = schema.audit.c, schema.runs.c
        ended = [status.value for status in RunStatus if status.is_final]
        query = select(audit.target, audit.caller).where(
            audit.method == "CreateRun",
            audit.outcome == DONE,
            audit.target.in_(select(runs.run_id).where(runs.status.not_in(ended))),
        )
        with self._reading() as connection:
            return {target: caller for target, caller in connection.execute(query)}

    def audit_head(self: Reader) -> AuditHead:
        with self._reading() as connection:
            return _head(connection)


class AuditWrites:
    """Writes of a `Transaction` (see base.py) about the audit."""

    _audit_head: AuditHead | None = None
    """The last entry that this transaction wrote; None before the first."""

    def add_audit(self: _Writer, records: Sequence[AuditRecord]) -> None:
        head = _head(self._connection) if self._audit_head is None else self._audit_head
        entries = []
        for record in records:
            entries.append(chained(record, head))
            head = head_of(entries[-1])
        if entries:
            self._connection.execute(_ADD, [asdict(entry) for entry in entries])
        self._audit_head = head


def _alone(connection: Connection, number: int) -> AuditEntry:
    """Return an entry, without content, which no hash covers, if its row cannot be read."""
    try:
        row = connection.execute(select(schema.audit).where(schema.audit.c.number == number)).one()
    except rows.UNREADABLE:
        return AuditEntry(number=number, time=0.0, caller="", method="", hash="")
    return AuditEntry(**row._mapping)


def _head(connection: Connection) -> AuditHead:
    row = connection.execute(_LAST).first()
    return EMPTY if row is None else AuditHead(row.number, row.hash)
