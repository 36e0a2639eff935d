"""Alembic's environment, run on a given connection: revisions.py upgrades through it, new_revision.py compares."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context

from fedplcc.aggregator.store.database import columns
from fedplcc.aggregator.store.database.schema import metadata


def render(kind: str, item: Any, autogenerate: Any) -> str | Literal[False]:
    """Return the source text of our column types for a new migration, or False for other types."""
    if kind != "type" or type(item).__module__ != columns.__name__:
        return False
    autogenerate.imports.add("from fedplcc.aggregator.store.database import columns")
    return f"columns.{item!r}"


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_item=render,
    render_as_batch=True,  # SQLite changes a table by copying it
    compare_server_default=True,
    transactional_ddl=True,  # SQLite's too, since the engine begins its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
