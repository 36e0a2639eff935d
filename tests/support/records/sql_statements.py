"""SQL statements of a store, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from fedplcc.aggregator.store.database.sql_store import SqlStore


@contextmanager
def statements(store: SqlStore) -> Iterator[list[str]]:
    """Every statement within the block, in order; a new store on the same database is another one."""
    asked: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        asked.append(" ".join(statement.split()))

    engine = store.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)
