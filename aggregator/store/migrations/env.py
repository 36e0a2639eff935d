"""Alembic's environment, run on a given connection: revisions.py upgrades through it."""

from __future__ import annotations

from alembic import context

from fedplcc.aggregator.store.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
    compare_server_default=True,
    transactional_ddl=True,  # SQLite's too, since the engine begins its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
