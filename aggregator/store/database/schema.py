"""Tables of the store at the present revision, with the meaning of each column.

A change needs a migration: the store's README.md says how. Its diagram and its tables are generated from this module.
"""

from __future__ import annotations

from sqlalchemy import JSON, Boolean, Column, Float, ForeignKey, Index, MetaData, Table

from fedplcc.aggregator.store.database.columns import Number, Text

REVISION = "0001"
"""Name of the newest migration, which results in the tables below."""

JsonOrNull = JSON(none_as_null=True)
_DIGEST = "BLAKE2b of the other columns, see database/rows.py; a row without its digest is damaged."

metadata = MetaData(
    # SQLite changes a table by copying it: only named constraints can be dropped or changed in the copy.
    naming_convention={
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

clients = Table(
    "clients",
    metadata,
    Column("client_id", Text(64), primary_key=True, comment="Name of the client in rosters."),
    Column("domain", Text(64), nullable=False, comment="Label of the domain that its data come from."),
    Column("num_examples", Number, nullable=False, comment="Training samples that it has."),
    Column("class_counts", JSON, nullable=False, comment="Training samples by the name of their class."),
    Column("environment", JSON, nullable=False, comment="What it computes on: packages, processor, device, platform."),
    Column(
        "last_seen_at",
        Float,
        nullable=False,
        comment="Its last sign of life that was recorded; seconds since the epoch.",
    ),
    Column("problem", JSON, comment="What keeps it from going on: reason, detail, hint; null if nothing does."),
    Column("display_name", Text(64), comment="Its name for people; null if it has none."),
    Column("model_kind", Text(160), comment="Its own kind of model; null if it trains the models of runs."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Every client that ever joined. Progress and connection are not kept.",
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text(64), primary_key=True, comment="Id of the run; unique for ever."),
    Column(
        "request_id",
        Text(128),
        nullable=False,
        unique=True,
        comment="Id that the caller gave its request; the same again means this run.",
    ),
    Column("request_hash", Text(64), nullable=False, comment="SHA-256 of what that request asked for."),
    Column("name", Text(64), nullable=False, comment="A name for people; not unique."),
    Column(
        "status",
        Text(16),
        nullable=False,
        comment="pending, running, paused, stopping, stopped, completed or failed.",
    ),
    Column("method", Text(64), nullable=False, comment="Name of its method in shared/methods."),
    Column("config_json", Text(), nullable=False, comment="Its configuration as canonical JSON, defaults filled in."),
    Column("config_hash", Text(64), nullable=False, comment="SHA-256 of config_json."),
    Column("total_rounds", Number, nullable=False, comment="Rounds after round 0."),
    Column("seed", Number, nullable=False, comment="Everything random in the run derives from it."),
    Column("roster", JSON, nullable=False, comment="Ids of the clients that take part, sorted."),
    Column("round", Number, nullable=False, comment="The latest round that opened; -1 before round 0."),
    Column("model", JSON, comment="Blob of the last committed round's model: role, sha256, size_bytes."),
    Column("prototypes", JSON, comment="Blob of the last committed round's global prototypes, likewise."),
    Column("is_pause_requested", Boolean, nullable=False, comment="Whether it pauses when the open round commits."),
    Column(
        "reason",
        Text(),
        nullable=False,
        comment="Why it failed, was stopped or waits, where a sentence was given; else empty.",
    ),
    Column("created_at", Float, nullable=False, comment="Seconds since the epoch."),
    Column("updated_at", Float, nullable=False, comment="When it changed last; seconds since the epoch."),
    Column(
        "quarantined",
        JsonOrNull,
        comment="Why each quarantined client takes no part any more, by its id; null if none is.",
    ),
    Column(
        "rejections", JsonOrNull, comment="Updates that were refused for what they are, by client id; null if none was."
    ),
    Column(
        "reason_record",
        JsonOrNull,
        comment="Why it failed or waits, as a kind and facts; null where reason has a sentence or nothing is to be said.",
    ),
    Column("start", JsonOrNull, comment="Blob of the model that the open round starts from; null where that is model."),
    Column(
        "server_state",
        JsonOrNull,
        comment="Blobs of the server state that the last committed round left, by role; null if it left none.",
    ),
    Column(
        "admitted_examples",
        JsonOrNull,
        comment="Samples of each client when it was admitted, by its id; null where its method's tasks do not need them.",
    ),
    Column(
        "retired",
        JsonOrNull,
        comment="Retirements by client id: round, is_forgotten, is_back; null if nobody was retired.",
    ),
    Column("num_admissions", Number, comment="Admissions of clients by request; null if there was none."),
    Column(
        "without_data",
        JsonOrNull,
        comment="Stages for which a client has nothing to train on, by client id; null if there is none.",
    ),
    Column(
        "stage_began",
        JsonOrNull,
        comment="First rounds of stages that people began, from stage 2 on; null if there is none.",
    ),
    Column("digest", Text(32), comment=_DIGEST),
    Index("runs_by_status", "status"),
    Index("runs_by_age", "created_at", "run_id"),
    Index("runs_in_lists", "status", "method", "name", "created_at", "updated_at", "run_id"),
    comment="Training jobs.",
)

run_labels = Table(
    "run_labels",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True, comment="Of which run."),
    Column("tags", JSON, nullable=False, comment="Its tags, sorted."),
    Column("notes", Text(), nullable=False, comment="Plain text for people."),
    Column("is_archived", Boolean, nullable=False, comment="Whether lists leave it out that do not ask for it."),
    Column("deleted_at", Float, comment="When it was deleted; seconds since the epoch, null if it was not."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="What people note about runs, for those that have tags or notes, are archived or were deleted.",
)

run_tags = Table(
    "run_tags",
    metadata,
    Column("tag", Text(40), primary_key=True, comment="A tag."),
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True, comment="A run that has it."),
    Index("run_tags_by_run", "run_id"),
    comment="Runs by tag, to find them; what counts is run_labels.",
)

rounds = Table(
    "rounds",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True, comment="Of which run."),
    Column("number", Number, primary_key=True, autoincrement=False, comment="0 makes the first model."),
    Column(
        "phase",
        Text(16),
        nullable=False,
        comment="initialising, collecting, aggregating, evaluating or committed.",
    ),
    Column("cohort", JSON, nullable=False, comment="Ids of the clients that were selected, sorted."),
    Column("model", JSON, comment="Blob of the model that it made; null before it is aggregated."),
    Column("prototypes", JSON, comment="Blob of the global prototypes that it made, likewise."),
    Column("metrics_json", Text(), nullable=False, comment="Its line of metrics.jsonl; empty before it commits."),
    Column("timings_json", Text(), nullable=False, comment="Its line of timings.jsonl; empty before it commits."),
    Column("phase_started_at", JSON, nullable=False, comment="When each phase began; seconds since the epoch."),
    Column(
        "dropped",
        JsonOrNull,
        comment="Clients of its cohort that it went on without: reason and detail by client id; null if it did not.",
    ),
    Column(
        "prototype_counts",
        JsonOrNull,
        comment="Numbers of its global prototypes by class, and their smallest, median and largest weight; null until made.",
    ),
    Column(
        "asked_again",
        JsonOrNull,
        comment="Clients asked for their update again, as stored blobs of it were damaged: how often, and for which blobs.",
    ),
    Column("start", JsonOrNull, comment="Blob of the model that the next round starts from; null where that is model."),
    Column(
        "server_state", JsonOrNull, comment="Blobs of the server state that it made, by role; null if it made none."
    ),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Rounds of the runs; the latest one of a run changes until it commits.",
)

updates = Table(
    "updates",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True, comment="Of which run."),
    Column("round", Number, primary_key=True, autoincrement=False, comment="For which round."),
    Column("client_id", Text(64), primary_key=True, comment="By which client."),
    Column("commit_order", Number, nullable=False, comment="Grows with every commit of any client."),
    Column("update", JSON, nullable=False, comment="The record Update of shared/types/runs.py; names its blobs."),
    Column("digest", Text(32), comment=_DIGEST),
    Index("updates_by_client", "client_id", "commit_order"),
    comment="What clients committed, one for each client and round.",
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("run_id", ForeignKey("runs.run_id"), primary_key=True, comment="Of which run."),
    Column("round", Number, primary_key=True, autoincrement=False, comment="Of which round's model."),
    Column("client_id", Text(64), primary_key=True, comment="By which client."),
    Column("evaluation", JSON, nullable=False, comment="The record Evaluation of shared/types/evaluations.py."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Correct and total predictions that clients reported, one for each client and round.",
)

blobs = Table(
    "blobs",
    metadata,
    Column("sha256", Text(64), primary_key=True, comment="Name of the file below blobs/."),
    Column("size_bytes", Number, nullable=False, comment="Its size."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Models and prototype sets that are whole and durable on the disk.",
)

client_blobs = Table(
    "client_blobs",
    metadata,
    Column("client_id", Text(64), primary_key=True, comment="By which client."),
    Column("sha256", ForeignKey("blobs.sha256"), primary_key=True, comment="Which blob."),
    Index("client_blobs_by_blob", "sha256"),
    comment="Which client committed which blob: it need not send that one again, and nobody else learns of it.",
)

control_requests = Table(
    "control_requests",
    metadata,
    Column(
        "request_id", Text(128), primary_key=True, comment="Id that the caller gave its request to pause and so on."
    ),
    Column("request_hash", Text(64), nullable=False, comment="SHA-256 of what it asked for, and of which run."),
    Column("run_id", ForeignKey("runs.run_id"), nullable=False, comment="Of which run."),
    Column("created_at", Float, nullable=False, comment="When it was done; seconds since the epoch."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Requests to pause, resume and stop that were done: the same again changes nothing. New runs name theirs.",
)

writer = Table(
    "writer",
    metadata,
    Column("state", Text(32), primary_key=True, comment="Drawn for a new database; its state directory says the same."),
    Column("token", Text(32), nullable=False, comment="Drawn by the aggregator that writes, at its start."),
    Column(
        "transactions",
        Number,
        nullable=False,
        comment="How many were committed: on PostgreSQL since its start, on SQLite ever.",
    ),
    comment="Who writes to the database: one row.",
)

events = Table(
    "events",
    metadata,
    Column("sequence", Number, primary_key=True, autoincrement=True, comment="Cursor; never used twice."),
    Column("time", Float, nullable=False, comment="Seconds since the epoch."),
    Column("type", Text(64), nullable=False, comment="What happened: run_created, round_committed and so on."),
    Column("run_id", Text(64), nullable=False, comment="To which run; empty if to none."),
    Column("round", Number, nullable=False, comment="To which round; -1 if to none."),
    Column("client_id", Text(64), nullable=False, comment="To which client; empty if to none."),
    Column("data", JSON, nullable=False, comment="What else there is to say, by name."),
    Column("digest", Text(32), comment=_DIGEST),
    Index("events_by_run", "run_id", "sequence"),
    comment="The history of all runs; only ever appended to. It feeds the server-sent events.",
    sqlite_autoincrement=True,
)

invitations = Table(
    "invitations",
    metadata,
    Column("invitation_id", Text(32), primary_key=True, comment="Id of the invitation; part of its line."),
    Column("secret_sha256", Text(64), nullable=False, comment="SHA-256 of its secret."),
    Column("role", Text(16), nullable=False, comment="What it admits: client, gateway or monitor."),
    Column("name", Text(64), nullable=False, comment="As whom."),
    Column("domain", Text(64), nullable=False, comment="Domain of a client's data; empty if not said."),
    Column("replaces", Boolean, nullable=False, comment="Whether it takes the name from its holder."),
    Column("created_at", Float, nullable=False, comment="When it was made; seconds since the epoch."),
    Column("expires_at", Float, nullable=False, comment="When it ends; seconds since the epoch."),
    Column("spent_at", Float, comment="When a certificate was issued for it; null before."),
    Column("serial", Text(40), comment="Of that certificate; null before."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Invitations to join the federation. Each admits one key.",
)

certificates = Table(
    "certificates",
    metadata,
    Column("serial", Text(40), primary_key=True, comment="Its serial number in hexadecimal."),
    Column("role", Text(16), nullable=False, comment="Role of its holder: client, gateway or monitor."),
    Column("name", Text(64), nullable=False, comment="Name of its holder."),
    Column("public_key_sha256", Text(64), nullable=False, comment="SHA-256 of its public key in DER."),
    Column("issued_at", Float, nullable=False, comment="When it was issued; seconds since the epoch."),
    Column("not_after", Float, nullable=False, comment="When it ends; seconds since the epoch."),
    Column("revoked_at", Float, comment="When it was revoked; null if it was not."),
    Column("pem", Text(8192), nullable=False, comment="The certificate and those above it, in PEM."),
    Column("digest", Text(32), comment=_DIGEST),
    Index("certificates_by_name", "role", "name"),
    comment="Certificates that were issued, those that have ended for 90 days left out.",
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key_id", Text(16), primary_key=True, comment="Id of the key; part of its text."),
    Column("secret_sha256", Text(64), nullable=False, comment="SHA-256 of its secret."),
    Column("kind", Text(16), nullable=False, comment="key, or session for a browser with the console."),
    Column("label", Text(64), nullable=False, comment="A name for people; not unique."),
    Column("scopes", JSON, nullable=False, comment="What it may do: read, results, run, admin, metrics."),
    Column("created_at", Float, nullable=False, comment="When it was made; seconds since the epoch."),
    Column("expires_at", Float, nullable=False, comment="When it ends; seconds since the epoch."),
    Column("revoked_at", Float, comment="When it was revoked; null if it was not."),
    Column("digest", Text(32), comment=_DIGEST),
    comment="Keys of people and programs that watch and steer runs.",
)

audit = Table(
    "audit",
    metadata,
    Column(
        "number", Number, primary_key=True, autoincrement=False, comment="Place in the chain, from 1, without gaps."
    ),
    Column("time", Float, nullable=False, comment="Seconds since the epoch."),
    Column("caller", Text(128), nullable=False, comment="Who: client:NAME, gateway:NAME, key:ID, owner, or nobody."),
    Column(
        "credential", Text(64), nullable=False, comment="Serial of the certificate or id of the key; empty without."
    ),
    Column("method", Text(64), nullable=False, comment="What was called: CreateRun and so on."),
    Column("target", Text(128), nullable=False, comment="Run, client, key or invitation; empty if none."),
    Column("outcome", Text(16), nullable=False, comment="done or refused."),
    Column("reason", Text(64), nullable=False, comment="Reason of a refusal; empty if done."),
    Column("address", Text(64), nullable=False, comment="From where; empty for the state directory's owner."),
    Column("request_id", Text(128), nullable=False, comment="Id of the request."),
    Column("count", Number, nullable=False, comment="How many equal refusals within a minute; 1 if done."),
    Column("hash", Text(64), nullable=False, comment="SHA-256 of the row before and of this row's other columns."),
    comment="Who changed what, and who was refused: a chain of hashes, only ever appended to.",
)
