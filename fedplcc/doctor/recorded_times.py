"""The clock, held against the newest time that an aggregator wrote."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Column, Connection, func, select

from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.engines.connections import database_errors
from fedplcc.aggregator.store.database.rows import UNREADABLE
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.doctor.findings import Finding, Subject, ok, problem

MOST_BEHIND_S = 300.0
"""Most seconds by which the clock may be behind the newest time on record."""
LATEST_S = 253_402_300_800.0
"""The year 10000: what is later is no time that was written."""
TIMES = (schema.events.c.time, schema.audit.c.time, schema.certificates.c.issued_at, schema.runs.c.updated_at)
"""Columns with times at which the aggregator wrote."""


def recorded_times(subject: Subject, store: SqlStore) -> Iterator[Finding]:
    """Compare the clock with the newest time on record: behind it, every member's certificate may not have begun."""
    with database_errors("cannot read the database"), store.database.engine.connect() as connection:
        newest = max(_newest(connection, column) for column in TIMES)
    behind_s = newest - subject.probes.wall_clock()
    if behind_s > MOST_BEHIND_S:
        long = f"{behind_s / 86_400:.1f} days" if behind_s >= 86_400 else f"{behind_s:.0f} s"
        yield problem(
            "clock",
            f"it is {long} behind the newest time on record, or was ahead then: members whose certificates have not begun "
            "for it are refused; set it, and turn on NTP",
        )
    else:
        yield ok("clock", "not behind the newest time on record")


def _newest(connection: Connection, column: Column[float]) -> float:
    """Return the newest time in a column; 0 if there is none, or none that is a time."""
    try:
        newest = float(connection.execute(select(func.max(column))).scalar() or 0.0)
    except UNREADABLE:
        return 0.0  # a damaged row, which `damaged` names
    return newest if newest < LATEST_S else 0.0
