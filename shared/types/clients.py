"""Clients: what the aggregator knows of them, their heartbeats, and its answer when they join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ClientActivity(StrEnum):
    """Activity of a trainer."""

    IDLE = "idle"
    DOWNLOADING = "downloading"
    INITIALISING = "initialising"
    EXTRACTING = "extracting"
    TRAINING = "training"
    SUMMARISING = "summarising"
    UPLOADING = "uploading"
    EVALUATING = "evaluating"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Packages and machine of a trainer; equal environments give equal bytes."""

    packages: Mapping[str, str] = field(default_factory=dict)
    cpu: str = ""
    device: str = ""
    platform: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProblem:
    """A problem of a trainer, for its operator; a fatal problem stops its work."""

    reason: str
    detail: str
    hint: str = ""
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client as the aggregator knows it."""

    client_id: str
    domain: str
    display_name: str = ""
    """Name for people in any letters; empty if it has none."""
    model_kind: str = ""
    """Its own kind of model: name, and stem if it has stems; empty where it trains the run's."""
    num_examples: int = 0
    class_counts: Mapping[str, int] = field(default_factory=dict)
    environment: Environment = Environment()
    is_connected: bool = False
    activity: ClientActivity = ClientActivity.IDLE
    run_id: str = ""
    round: int = 0
    progress: float = 0.0
    last_seen_at: float = 0.0
    problem: ClientProblem | None = None
    readings: Mapping[str, float] = field(default_factory=dict)
    held_bytes: int = 0
    """Bytes of its uploads on the aggregator's disk that no commit has stored yet; not stored."""
    smallest_side: int = 0
    """Smallest side of the images that it looked at when it joined, in pixels; 0 where it does not say. Not stored."""
    is_revoked: bool = False
    """Whether every certificate of it was revoked; not stored."""


class LogLevel(StrEnum):
    """Level of a log line of a site, or the one from which on its owner lets lines out."""

    NONE = "none"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line of a trainer's log that may leave its site; shared/site_logs.py says which."""

    time: float
    """When it was written, in whole microseconds; no two lines of a trainer have the same."""
    level: LogLevel
    event: str
    run_id: str = ""
    round: int = 0
    facts: tuple[tuple[str, str], ...] = ()
    """Names and values, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLog:
    """Log lines of a client as the aggregator keeps them in memory, each with its number, oldest first."""

    level: LogLevel | None = None
    """The level from which on the site lets lines out; None where its trainer has not said so."""
    lines: tuple[tuple[int, LogLine], ...] = ()
    left_out: int = 0
    """Lines that trainer or aggregator left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A trainer's sign of life; `progress` is the fraction of the activity that is done, 0 to 1."""

    client_id: str
    activity: ClientActivity = ClientActivity.IDLE
    run_id: str = ""
    round: int = 0
    progress: float = 0.0
    readings: Mapping[str, float] = field(default_factory=dict)
    problem: ClientProblem | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Impossible readings that the receiver left out of `readings`: the reason for each, by name."""
    is_leaving: bool = False
    """Whether the trainer ends on purpose."""
    log_level: LogLevel | None = None
    """The level from which on the site lets log lines out; None where the heartbeat does not say."""
    log_lines: tuple[LogLine, ...] = ()
    log_lines_left_out: int = 0
    """Lines that the trainer has left out since it was started."""


@dataclass(frozen=True, slots=True)
class CommittedUpdate:
    """Reference to a committed update: run, round and the SHA-256 of its blobs in payload order."""

    run_id: str
    round: int
    sha256s: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The last entry of the audit at some time: it stands for all entries up to it."""

    number: int
    """0 for an empty chain."""
    hash: str


@dataclass(frozen=True, slots=True)
class ForgottenRun:
    """A run that is to forget a client."""

    run_id: str
    round: int
    """The latest round of which the client keeps nothing; -1 where none had opened."""


@dataclass(frozen=True, slots=True)
class CommittedRelease:
    """A release with noise that a committed update carried."""

    run_id: str
    config_hash: str
    """SHA-256 of the run's configuration: runs of one configuration share their releases."""
    round: int
    """The round whose release it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The aggregator's answer to a client that joined."""

    heartbeat_interval_s: float
    lease_s: float
    max_chunk_bytes: int
    max_blob_bytes: int
    last_committed: CommittedUpdate | None = None
    version: str = ""
    open_runs: tuple[str, ...] = ()
    """Runs of which the client keeps its state; it lets go of what it keeps of any other."""
    max_inline_bytes: int = 0
    """Most bytes of blobs that a commit may carry; 0 for none."""
    audit_head: AuditHead | None = None
    """The audit as it stood; None where a simulation has none."""
    forgotten_runs: tuple[ForgottenRun, ...] = ()
    """The newest runs that are to forget the client, `MAX_FORGOTTEN_RUNS` at most."""
    last_release: CommittedRelease | None = None
    """The client's last release with noise that was committed; None if it made none."""
