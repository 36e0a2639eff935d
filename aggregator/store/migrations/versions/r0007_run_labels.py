"""Add what people note about runs (tags, notes, archived, deleted), and an index for lists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Text

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add two tables, empty, and the index."""
    op.create_table(
        "run_labels",
        sa.Column("run_id", Text(64), sa.ForeignKey("runs.run_id", name="fk_run_labels_run_id"), primary_key=True),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("notes", Text(), nullable=False),
        sa.Column("is_archived", sa.Boolean, nullable=False),
        sa.Column("deleted_at", sa.Float, nullable=True),
        sa.Column("digest", Text(32), nullable=True),
    )
    op.create_table(
        "run_tags",
        sa.Column("tag", Text(40), primary_key=True),
        sa.Column("run_id", Text(64), sa.ForeignKey("runs.run_id", name="fk_run_tags_run_id"), primary_key=True),
    )
    op.create_index("run_tags_by_run", "run_tags", ["run_id"])
    columns = ["status", "method", "name", "created_at", "updated_at", "run_id"]
    op.create_index("runs_in_lists", "runs", columns)
