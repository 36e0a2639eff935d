"""Add who was retired from a run, and the number of admissions by request.

No digest changes: a digest leaves the columns out where they are null, as they are in every older row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Number

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns; nobody was retired or admitted by request before."""
    op.add_column("runs", sa.Column("retired", sa.JSON, nullable=True))
    op.add_column("runs", sa.Column("num_admissions", Number, nullable=True))
