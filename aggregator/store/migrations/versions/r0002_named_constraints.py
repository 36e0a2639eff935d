"""Give every constraint a name, so that later revisions can change it; drop the version that Alembic's replaces."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"

CONSTRAINED = ("runs", "rounds", "updates", "evaluations", "client_blobs")
"""Tables with a constraint that has no name."""
NAMES = {"uq": "uq_%(table_name)s_%(column_0_N_name)s", "fk": "fk_%(table_name)s_%(column_0_N_name)s"}


def upgrade() -> None:
    """Copy them: SQLite takes a name only for a new table, and no other database was ever at revision 0001."""
    for table in CONSTRAINED:
        with op.batch_alter_table(table, recreate="always", naming_convention=NAMES):
            pass
    op.drop_table("schema_version")
