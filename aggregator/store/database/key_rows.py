"""Rows of keys, and the reads and writes of them that are mixed into the SQL store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, delete, or_, select

from fedplcc.aggregator.store.base import ApiKey
from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader, Writer

OLDER_AT_ONCE = 1_000
"""Most rows beyond the limit that one transaction removes; each adds one row."""


class KeyReads:
    """Reads of a `Store` (see base.py) about keys."""

    def find_key(self: Reader, key_id: str) -> ApiKey | None:
        table = schema.api_keys
        with self._reading() as connection:
            row = connection.execute(select(table).where(table.c.key_id == key_id)).first()
            return None if row is None else _key_of(row)

    def list_keys(self: Reader, *, ending_after: float, limit: int) -> list[ApiKey]:
        table = schema.api_keys
        query = select(table).where(table.c.expires_at > ending_after, table.c.revoked_at.is_(None))
        with self._reading() as connection:
            found = connection.execute(query.order_by(table.c.created_at.desc(), table.c.key_id).limit(limit))
            return [_key_of(row) for row in found.all()]


class KeyWrites:
    """Writes of a `Transaction` (see base.py) about keys."""

    def save_key(self: Writer, key: ApiKey) -> None:
        values = asdict(key)
        self._upsert(schema.api_keys, rows.sealed(schema.api_keys, values | {"scopes": list(key.scopes)}))

    def forget_ended_keys(self: Writer, now: float, before: float, most: int) -> None:
        table = schema.api_keys
        has_ended = or_(table.c.expires_at < now, table.c.revoked_at.is_not(None))
        newest = select(table.c.key_id).where(has_ended).order_by(table.c.created_at.desc(), table.c.key_id)
        older = newest.limit(OLDER_AT_ONCE).offset(most)
        self._connection.execute(delete(table).where(or_(table.c.expires_at < before, table.c.key_id.in_(older))))


def _key_of(row: Row[Any]) -> ApiKey:
    values = rows.checked(schema.api_keys, row)
    return ApiKey(**values | {"scopes": tuple(values["scopes"])})
