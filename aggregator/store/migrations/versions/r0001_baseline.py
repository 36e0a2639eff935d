"""The tables of the first databases, which named no constraint and kept a version of their own.

A database of that time is taken to be at this revision. The tables stand here as they were: schema.py moves on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

tables = sa.MetaData()

sa.Table(
    "schema_version",
    tables,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)
sa.Table(
    "clients",
    tables,
    sa.Column("client_id", sa.String(64), primary_key=True),
    sa.Column("domain", sa.String(64), nullable=False),
    sa.Column("num_examples", sa.Integer, nullable=False),
    sa.Column("class_counts", sa.JSON, nullable=False),
    sa.Column("environment", sa.JSON, nullable=False),
    sa.Column("last_seen_at", sa.Float, nullable=False),
    sa.Column("problem", sa.JSON),
)
sa.Table(
    "runs",
    tables,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("request_id", sa.String(128), nullable=False, unique=True),
    sa.Column("request_hash", sa.String(64), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("method", sa.String(64), nullable=False),
    sa.Column("config_json", sa.Text, nullable=False),
    sa.Column("config_hash", sa.String(64), nullable=False),
    sa.Column("total_rounds", sa.Integer, nullable=False),
    sa.Column("seed", sa.Integer, nullable=False),
    sa.Column("roster", sa.JSON, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("model", sa.JSON),
    sa.Column("prototypes", sa.JSON),
    sa.Column("is_pause_requested", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
    sa.Column("updated_at", sa.Float, nullable=False),
    sa.Index("runs_by_status", "status"),
    sa.Index("runs_by_age", "created_at", "run_id"),
)
sa.Table(
    "rounds",
    tables,
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("cohort", sa.JSON, nullable=False),
    sa.Column("model", sa.JSON),
    sa.Column("prototypes", sa.JSON),
    sa.Column("metrics_json", sa.Text, nullable=False),
    sa.Column("timings_json", sa.Text, nullable=False),
    sa.Column("phase_started_at", sa.JSON, nullable=False),
)
sa.Table(
    "updates",
    tables,
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("client_id", sa.String(64), primary_key=True),
    sa.Column("commit_order", sa.Integer, nullable=False),
    sa.Column("update", sa.JSON, nullable=False),
    sa.Index("updates_by_client", "client_id", "commit_order"),
)
sa.Table(
    "evaluations",
    tables,
    sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("client_id", sa.String(64), primary_key=True),
    sa.Column("evaluation", sa.JSON, nullable=False),
)
sa.Table(
    "blobs",
    tables,
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("size_bytes", sa.Integer, nullable=False),
)
sa.Table(
    "client_blobs",
    tables,
    sa.Column("client_id", sa.String(64), primary_key=True),
    sa.Column("sha256", sa.String(64), sa.ForeignKey("blobs.sha256"), primary_key=True),
)
sa.Table(
    "events",
    tables,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("type", sa.String(64), nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("client_id", sa.String(64), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Index("events_by_run", "run_id", "sequence"),
    sqlite_autoincrement=True,
)


def upgrade() -> None:
    """Make them."""
    tables.create_all(op.get_bind())
