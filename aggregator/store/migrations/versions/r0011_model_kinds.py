"""Add the kinds of models that clients have of their own.

No digest changes: a digest leaves the column out where it is null, as it is in every older row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Text

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column; clients that joined before train the models of runs."""
    op.add_column("clients", sa.Column("model_kind", Text(160), nullable=True))
