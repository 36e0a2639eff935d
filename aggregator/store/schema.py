"""Tables of the store. `SCHEMA_VERSION` is written once; an aggregator refuses a database of another version."""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

SCHEMA_VERSION = 1

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
)

clients = Table(
    "clients",
    metadata,
    Column("client_id", String(64), primary_key=True),
    Column("domain", String(64), nullable=False),
    Column("num_examples", Integer, nullable=False),
    Column("class_counts", JSON, nullable=False),
    Column("environment", JSON, nullable=False),
    Column("last_seen_at", Float, nullable=False),
    Column("problem", JSON),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("request_id", String(128), nullable=False, unique=True),
    Column("request_hash", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("status", String(16), nullable=False),
    Column("method", String(64), nullable=False),
    Column("config_json", Text, nullable=False),
    Column("config_hash", String(64), nullable=False),
    Column("total_rounds", Integer, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("roster", JSON, nullable=False),
    Column("round", Integer, nullable=False),
    Column("model", JSON),
    Column("prototypes", JSON),
    Column("is_pause_requested", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Index("runs_by_status", "status"),
    Index("runs_by_age", "created_at", "run_id"),
)

rounds = Table(
    "rounds",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("phase", String(16), nullable=False),
    Column("cohort", JSON, nullable=False),
    Column("model", JSON),
    Column("prototypes", JSON),
    Column("metrics_json", Text, nullable=False),
    Column("timings_json", Text, nullable=False),
    Column("phase_started_at", JSON, nullable=False),
)

updates = Table(
    "updates",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("client_id", String(64), primary_key=True),
    Column("commit_order", Integer, nullable=False),
    Column("update", JSON, nullable=False),
    Index("updates_by_client", "client_id", "commit_order"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("client_id", String(64), primary_key=True),
    Column("evaluation", JSON, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("size_bytes", Integer, nullable=False),
)

client_blobs = Table(
    "client_blobs",
    metadata,
    Column("client_id", String(64), primary_key=True),
    Column("sha256", ForeignKey("blobs.sha256"), primary_key=True),
)

events = Table(
    "events",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("time", Float, nullable=False),
    Column("type", String(64), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("client_id", String(64), nullable=False),
    Column("data", JSON, nullable=False),
    Index("events_by_run", "run_id", "sequence"),
    sqlite_autoincrement=True,
)
