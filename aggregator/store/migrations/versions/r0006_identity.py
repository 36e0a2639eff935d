"""Add the tables of identity: invitations, certificates, keys of people and programs, and the audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from aggregator.store.database.columns import Number, Text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the four tables, empty."""
    op.create_table(
        "invitations",
        sa.Column("invitation_id", Text(32), primary_key=True),
        sa.Column("secret_sha256", Text(64), nullable=False),
        sa.Column("role", Text(16), nullable=False),
        sa.Column("name", Text(64), nullable=False),
        sa.Column("domain", Text(64), nullable=False),
        sa.Column("replaces", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("spent_at", sa.Float, nullable=True),
        sa.Column("serial", Text(40), nullable=True),
        sa.Column("digest", Text(32), nullable=True),
    )
    op.create_table(
        "certificates",
        sa.Column("serial", Text(40), primary_key=True),
        sa.Column("role", Text(16), nullable=False),
        sa.Column("name", Text(64), nullable=False),
        sa.Column("public_key_sha256", Text(64), nullable=False),
        sa.Column("issued_at", sa.Float, nullable=False),
        sa.Column("not_after", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float, nullable=True),
        sa.Column("pem", Text(8192), nullable=False),
        sa.Column("digest", Text(32), nullable=True),
    )
    op.create_index("certificates_by_name", "certificates", ["role", "name"])
    op.create_table(
        "api_keys",
        sa.Column("key_id", Text(16), primary_key=True),
        sa.Column("secret_sha256", Text(64), nullable=False),
        sa.Column("kind", Text(16), nullable=False),
        sa.Column("label", Text(64), nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float, nullable=True),
        sa.Column("digest", Text(32), nullable=True),
    )
    op.create_table(
        "audit",
        sa.Column("number", Number, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("caller", Text(128), nullable=False),
        sa.Column("credential", Text(64), nullable=False),
        sa.Column("method", Text(64), nullable=False),
        sa.Column("target", Text(128), nullable=False),
        sa.Column("outcome", Text(16), nullable=False),
        sa.Column("reason", Text(64), nullable=False),
        sa.Column("address", Text(64), nullable=False),
        sa.Column("request_id", Text(128), nullable=False),
        sa.Column("count", Number, nullable=False),
        sa.Column("hash", Text(64), nullable=False),
    )
