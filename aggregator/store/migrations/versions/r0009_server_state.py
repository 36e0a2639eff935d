"""Add the server state of runs and rounds, and the model that the next round starts from where that is another.

No digest changes: a digest leaves these columns out where they are null, as they are in every older row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add two columns to both tables, empty."""
    for table in ("runs", "rounds"):
        for name in ("start", "server_state"):
            op.add_column(table, sa.Column(name, sa.JSON, nullable=True))
