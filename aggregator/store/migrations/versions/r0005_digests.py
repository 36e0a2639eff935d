"""Give rows a digest each, rounds the clients that were asked again, and SQLite a writer.

The digests are computed here as they were defined at this revision; aggregator/store/database/rows.py may go on.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Text

revision = "0005"
down_revision = "0004"

UNCOVERED = {"runs": {"request_id", "request_hash"}, "events": {"sequence"}}
TABLES = ("clients", "runs", "rounds", "updates", "evaluations", "blobs", "control_requests", "events")
BATCH = 1000


def upgrade() -> None:
    """Add the columns, and compute the digests of all rows."""
    op.add_column("rounds", sa.Column("asked_again", sa.JSON, nullable=True))
    for name in TABLES:
        op.add_column(name, sa.Column("digest", Text(32), nullable=True))
    connection = op.get_bind()
    for name in TABLES:
        _fill(connection, sa.Table(name, sa.MetaData(), autoload_with=connection))


def _fill(connection: sa.Connection, table: sa.Table) -> None:
    key = list(table.primary_key.columns)
    is_it = sa.and_(*(column == sa.bindparam(f"key_{column.name}") for column in key))
    statement = sa.update(table).where(is_it).values(digest=sa.bindparam("computed"))
    page = sa.select(table).order_by(*key).limit(BATCH)
    names = connection.execute(page.with_only_columns(*key)).all()
    while names:
        found = []
        for name in names:
            is_row = [column == value for column, value in zip(key, name, strict=True)]
            try:
                row = connection.execute(sa.select(table).where(*is_row)).mappings().one()
                computed = digest(table, row)
            except (ValueError, TypeError):
                continue  # a row that cannot be read gets no digest, and counts as damaged
            found.append({f"key_{each.name}": row[each.name] for each in key} | {"computed": computed})
        if found:
            connection.execute(statement, found)
        names = connection.execute(page.with_only_columns(*key).where(sa.tuple_(*key) > tuple(names[-1]))).all()


def digest(table: sa.Table, row: Any) -> str:
    """Return the digest of a row."""
    left_out = {"digest", *UNCOVERED.get(table.name, ())}
    names = sorted(column.name for column in table.columns)
    covered = [row[name] for name in names if name not in left_out]
    canonical = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
