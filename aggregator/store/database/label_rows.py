"""Rows of what people note about runs, and the deletion of runs and clients, mixed into the SQL store."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, tuple_

from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader, Writer
from fedplcc.shared.errors import RowCorrupt
from fedplcc.shared.run_lists import RunLabels

_OF_RUN: tuple[Table, ...] = (schema.updates, schema.evaluations, schema.rounds)
"""Tables whose rows go with a run, children first."""
GIVEN_BACK = 2000
"""Most pages that one transaction takes out of a SQLite file after it has removed rows."""


def labels_of(row: Row[Any]) -> RunLabels:
    """Return the labels of a row.

    Raises:
        RowCorrupt: The row is damaged.
    """
    values = rows.checked(schema.run_labels, row)
    return RunLabels(
        tags=tuple(values["tags"]),
        notes=values["notes"],
        is_archived=values["is_archived"],
        deleted_at=values["deleted_at"],
    )


class LabelReads:
    """Reads of a `Store` (see base.py) about labels and deleted runs."""

    def find_labels(self: Reader, run_id: str) -> RunLabels:
        table = schema.run_labels
        with self._reading() as connection:
            row = connection.execute(select(table).where(table.c.run_id == run_id)).first()
        return RunLabels() if row is None else labels_of(row)

    def deleted_runs(self: Reader, *, with_rows: bool = False) -> list[str]:
        table = schema.run_labels
        query = select(table.c.run_id).where(table.c.deleted_at.is_not(None)).order_by(table.c.run_id)
        if with_rows:
            has_rows = [select(each.c.run_id).where(each.c.run_id == table.c.run_id).exists() for each in _OF_RUN]
            query = query.where(has_rows[0] | has_rows[1] | has_rows[2])
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def damaged_deletions(self: Reader) -> list[str]:
        table, found = schema.run_labels, list[str]()
        names = select(table.c.run_id).where(table.c.deleted_at.is_not(None)).order_by(table.c.run_id)
        with self._reading() as connection:
            for name in connection.execute(names).scalars().all():
                try:
                    labels_of(connection.execute(select(table).where(table.c.run_id == name)).one())
                except (RowCorrupt, *rows.UNREADABLE):
                    found.append(name)
        return found


def _give_back(connection: Connection) -> None:
    """Take free pages out of a SQLite file, at most `GIVEN_BACK` of them: its end is cut off at the next checkpoint."""
    num_free = int(connection.exec_driver_sql("PRAGMA freelist_count").scalar_one())
    for _ in range(min(num_free, GIVEN_BACK)):
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")  # Python's module takes one step of the statement


class LabelWrites:
    """Writes of a `Transaction` (see base.py): labels, and deletions."""

    def save_labels(self: Writer, run_id: str, labels: RunLabels) -> None:
        values = {
            "run_id": run_id,
            "tags": list(labels.tags),
            "notes": labels.notes,
            "is_archived": labels.is_archived,
            "deleted_at": labels.deleted_at,
        }
        self._upsert(schema.run_labels, rows.sealed(schema.run_labels, values))
        table = schema.run_tags
        self._connection.execute(delete(table).where(table.c.run_id == run_id))
        if labels.tags:
            self._connection.execute(insert(table), [{"tag": tag, "run_id": run_id} for tag in labels.tags])

    def remove_rows(self: Writer, run_id: str, most: int) -> int:
        self.write_gathered()
        self.changes.is_read_again = True
        removed = 0
        for table in _OF_RUN:
            key = tuple(table.primary_key.columns)
            of_run = select(*key).where(table.c.run_id == run_id).limit(most - removed)
            removed += self._connection.execute(delete(table).where(tuple_(*key).in_(of_run))).rowcount
            if removed >= most:
                break
        if removed and self._connection.dialect.name == "sqlite":
            _give_back(self._connection)
        return removed

    def forget_client(self: Writer, client_id: str) -> None:
        self.write_gathered()
        for table in (schema.client_blobs, schema.clients):
            self._connection.execute(delete(table).where(table.c.client_id == client_id))
