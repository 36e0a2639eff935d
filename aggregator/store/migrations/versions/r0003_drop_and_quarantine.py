"""Add who was dropped from a round and quarantined from a run, the requests of control that were done, and who writes.

PostgreSQL begins at this revision: the earlier ones, and this one, only ever change SQLite.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add tables and columns; the new columns of existing rows are empty."""
    op.create_table(
        "control_requests",
        sa.Column("request_id", sa.String(128), primary_key=True),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column(
            "run_id", sa.String(64), sa.ForeignKey("runs.run_id", name="fk_control_requests_run_id"), nullable=False
        ),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "writer",
        sa.Column("state", sa.String(32), primary_key=True),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("transactions", sa.Integer, nullable=False),
    )
    op.create_index("client_blobs_by_blob", "client_blobs", ["sha256"])
    op.add_column("rounds", sa.Column("dropped", sa.JSON, nullable=True))
    op.add_column("runs", sa.Column("quarantined", sa.JSON, nullable=True))
    op.add_column("runs", sa.Column("rejections", sa.JSON, nullable=True))
