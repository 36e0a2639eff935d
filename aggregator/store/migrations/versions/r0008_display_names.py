"""Add the names for people that clients have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column; clients that joined before have none."""
    op.add_column("clients", sa.Column("display_name", Text(64), nullable=True))
