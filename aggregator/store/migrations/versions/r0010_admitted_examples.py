"""Add the samples of clients as they were admitted to a run.

No digest changes: a digest leaves the column out where it is null, as it is in every older row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column, empty."""
    op.add_column("runs", sa.Column("admitted_examples", sa.JSON, nullable=True))
