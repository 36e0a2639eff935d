"""Run by Alembic, on the connection that it is given: revisions.py upgrades through it, and new_revision.py compares."""

from __future__ import annotations

from alembic import context

from aggregator.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
    compare_server_default=True,
    transactional_ddl=True,  # SQLite's too, since the engine begins its transactions itself
)
with context.begin_transaction():
    context.run_migrations()
