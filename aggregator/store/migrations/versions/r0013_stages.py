"""Add the stages of runs whose data change: when people began them, and which clients have nothing to train on there.

No digest changes: a digest leaves the columns out where they are null, as they are in every older row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the columns; no run had stages before."""
    op.add_column("runs", sa.Column("without_data", sa.JSON, nullable=True))
    op.add_column("runs", sa.Column("stage_began", sa.JSON, nullable=True))
