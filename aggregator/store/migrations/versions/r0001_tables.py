"""Make the tables of 0.2.0, where migrations begin.

A new database is made of schema.py at once; a test proves that its tables are the ones made here and changed since.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from fedplcc.aggregator.store.database.columns import Number, Text

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table."""
    op.create_table(
        "api_keys",
        sa.Column("key_id", Text(16), nullable=False),
        sa.Column("secret_sha256", Text(64), nullable=False),
        sa.Column("kind", Text(16), nullable=False),
        sa.Column("label", Text(64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_table(
        "audit",
        sa.Column("number", Number, autoincrement=False, nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
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
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "blobs",
        sa.Column("sha256", Text(64), nullable=False),
        sa.Column("size_bytes", Number, nullable=False),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "certificates",
        sa.Column("serial", Text(40), nullable=False),
        sa.Column("role", Text(16), nullable=False),
        sa.Column("name", Text(64), nullable=False),
        sa.Column("public_key_sha256", Text(64), nullable=False),
        sa.Column("issued_at", sa.Float(), nullable=False),
        sa.Column("not_after", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float()),
        sa.Column("pem", Text(8192), nullable=False),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("serial"),
    )
    op.create_index("certificates_by_name", "certificates", ["role", "name"])

    op.create_table(
        "clients",
        sa.Column("client_id", Text(64), nullable=False),
        sa.Column("domain", Text(64), nullable=False),
        sa.Column("num_examples", Number, nullable=False),
        sa.Column("class_counts", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("last_seen_at", sa.Float(), nullable=False),
        sa.Column("problem", sa.JSON()),
        sa.Column("display_name", Text(64)),
        sa.Column("model_kind", Text(160)),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("client_id"),
    )
    op.create_table(
        "events",
        sa.Column("sequence", Number, autoincrement=True, nullable=False),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("type", Text(64), nullable=False),
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("round", Number, nullable=False),
        sa.Column("client_id", Text(64), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_index("events_by_run", "events", ["run_id", "sequence"])

    op.create_table(
        "invitations",
        sa.Column("invitation_id", Text(32), nullable=False),
        sa.Column("secret_sha256", Text(64), nullable=False),
        sa.Column("role", Text(16), nullable=False),
        sa.Column("name", Text(64), nullable=False),
        sa.Column("domain", Text(64), nullable=False),
        sa.Column("replaces", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("spent_at", sa.Float()),
        sa.Column("serial", Text(40)),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("invitation_id"),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("request_id", Text(128), nullable=False),
        sa.Column("request_hash", Text(64), nullable=False),
        sa.Column("name", Text(64), nullable=False),
        sa.Column("status", Text(16), nullable=False),
        sa.Column("method", Text(64), nullable=False),
        sa.Column("config_json", Text(), nullable=False),
        sa.Column("config_hash", Text(64), nullable=False),
        sa.Column("total_rounds", Number, nullable=False),
        sa.Column("seed", Number, nullable=False),
        sa.Column("roster", sa.JSON(), nullable=False),
        sa.Column("round", Number, nullable=False),
        sa.Column("model", sa.JSON()),
        sa.Column("prototypes", sa.JSON()),
        sa.Column("is_pause_requested", sa.Boolean(), nullable=False),
        sa.Column("reason", Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("quarantined", sa.JSON(none_as_null=True)),
        sa.Column("rejections", sa.JSON(none_as_null=True)),
        sa.Column("reason_record", sa.JSON(none_as_null=True)),
        sa.Column("start", sa.JSON(none_as_null=True)),
        sa.Column("server_state", sa.JSON(none_as_null=True)),
        sa.Column("admitted_examples", sa.JSON(none_as_null=True)),
        sa.Column("retired", sa.JSON(none_as_null=True)),
        sa.Column("num_admissions", Number),
        sa.Column("without_data", sa.JSON(none_as_null=True)),
        sa.Column("stage_began", sa.JSON(none_as_null=True)),
        sa.Column("digest", Text(32)),
        sa.PrimaryKeyConstraint("run_id"),
        sa.UniqueConstraint("request_id", name=op.f("uq_runs_request_id")),
    )
    op.create_index("runs_by_age", "runs", ["created_at", "run_id"])
    op.create_index("runs_by_status", "runs", ["status"])
    op.create_index("runs_in_lists", "runs", ["status", "method", "name", "created_at", "updated_at", "run_id"])

    op.create_table(
        "writer",
        sa.Column("state", Text(32), nullable=False),
        sa.Column("token", Text(32), nullable=False),
        sa.Column("transactions", Number, nullable=False),
        sa.PrimaryKeyConstraint("state"),
    )
    op.create_table(
        "client_blobs",
        sa.Column("client_id", Text(64), nullable=False),
        sa.Column("sha256", Text(64), nullable=False),
        sa.ForeignKeyConstraint(["sha256"], ["blobs.sha256"], name=op.f("fk_client_blobs_sha256")),
        sa.PrimaryKeyConstraint("client_id", "sha256"),
    )
    op.create_index("client_blobs_by_blob", "client_blobs", ["sha256"])

    op.create_table(
        "control_requests",
        sa.Column("request_id", Text(128), nullable=False),
        sa.Column("request_hash", Text(64), nullable=False),
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("digest", Text(32)),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_control_requests_run_id")),
        sa.PrimaryKeyConstraint("request_id"),
    )
    op.create_table(
        "evaluations",
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("round", Number, autoincrement=False, nullable=False),
        sa.Column("client_id", Text(64), nullable=False),
        sa.Column("evaluation", sa.JSON(), nullable=False),
        sa.Column("digest", Text(32)),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_evaluations_run_id")),
        sa.PrimaryKeyConstraint("run_id", "round", "client_id"),
    )
    op.create_table(
        "rounds",
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("number", Number, autoincrement=False, nullable=False),
        sa.Column("phase", Text(16), nullable=False),
        sa.Column("cohort", sa.JSON(), nullable=False),
        sa.Column("model", sa.JSON()),
        sa.Column("prototypes", sa.JSON()),
        sa.Column("metrics_json", Text(), nullable=False),
        sa.Column("timings_json", Text(), nullable=False),
        sa.Column("phase_started_at", sa.JSON(), nullable=False),
        sa.Column("dropped", sa.JSON(none_as_null=True)),
        sa.Column("prototype_counts", sa.JSON(none_as_null=True)),
        sa.Column("asked_again", sa.JSON(none_as_null=True)),
        sa.Column("start", sa.JSON(none_as_null=True)),
        sa.Column("server_state", sa.JSON(none_as_null=True)),
        sa.Column("digest", Text(32)),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_rounds_run_id")),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_table(
        "run_labels",
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("notes", Text(), nullable=False),
        sa.Column("is_archived", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.Float()),
        sa.Column("digest", Text(32)),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_run_labels_run_id")),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "run_tags",
        sa.Column("tag", Text(40), nullable=False),
        sa.Column("run_id", Text(64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_run_tags_run_id")),
        sa.PrimaryKeyConstraint("tag", "run_id"),
    )
    op.create_index("run_tags_by_run", "run_tags", ["run_id"])

    op.create_table(
        "updates",
        sa.Column("run_id", Text(64), nullable=False),
        sa.Column("round", Number, autoincrement=False, nullable=False),
        sa.Column("client_id", Text(64), nullable=False),
        sa.Column("commit_order", Number, nullable=False),
        sa.Column("update", sa.JSON(), nullable=False),
        sa.Column("digest", Text(32)),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name=op.f("fk_updates_run_id")),
        sa.PrimaryKeyConstraint("run_id", "round", "client_id"),
    )
    op.create_index("updates_by_client", "updates", ["client_id", "commit_order"])
