"""Runs, their rounds and the updates of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fedplcc.shared.reasons import Dropped, Reason
from fedplcc.shared.types.evaluations import Evaluation
from fedplcc.shared.types.payloads import BlobRef, Payload


class RunStatus(StrEnum):
    """State of a run."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing can happen to the run any more."""
        return self in (RunStatus.STOPPED, RunStatus.COMPLETED, RunStatus.FAILED)


class RoundPhase(StrEnum):
    """Phases of a round, in order."""

    INITIALISING = "initialising"
    COLLECTING = "collecting"
    AGGREGATING = "aggregating"
    EVALUATING = "evaluating"
    COMMITTED = "committed"


LAST, BEST = -1, -2
"""Choice of a round for its model and prototypes: the last committed one, the best one by validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The committed update of one client for one round."""

    client_id: str
    payload: Payload
    num_examples: int
    num_excluded: int = 0
    class_counts: tuple[int, ...] = ()
    losses: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    num_prototypes: int = 0
    """Set by the aggregator when it checks the update, as is the norm."""
    norm: float | None = None
    """L2 norm of the local model minus the global one; None where the clients keep their models."""

    def same_content(self, other: Update) -> bool:
        """Whether two updates are equal except for timings, which differ in a retry."""
        return replace(self, timings={}) == replace(other, timings={})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeCounts:
    """Numbers of the global prototypes of one round.

    Attributes:
        by_class: Prototypes of each class, `[M]`.
        weights: Smallest, median and largest normalised weight; None without prototypes.
    """

    by_class: tuple[int, ...]
    weights: tuple[float, float, float] | None = None

    @property
    def total(self) -> int:
        """Prototypes of all classes."""
        return sum(self.by_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAgain:
    """A request to a client to send its update of the open round again, because stored blobs of it were damaged.

    Attributes:
        sha256s: The blobs that were damaged the last time, sorted.
    """

    times: int
    sha256s: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round; its mappings are keyed by client id."""

    number: int
    phase: RoundPhase
    cohort: tuple[str, ...]
    updates: Mapping[str, Update] = field(default_factory=dict)
    evaluations: Mapping[str, Evaluation] = field(default_factory=dict)
    model: BlobRef | None = None
    prototypes: BlobRef | None = None
    prototype_counts: PrototypeCounts | None = None
    """Counts of `prototypes`; None before aggregation."""
    results_json: str = ""
    """The round's line of metrics.jsonl; empty until the round has committed."""
    timings_json: str = ""
    phase_started_at: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, Dropped] = field(default_factory=dict)
    """Clients of the cohort that the round does not wait for."""
    asked_again: Mapping[str, AskedAgain] = field(default_factory=dict)
    """Clients whose stored update was damaged, and which were asked for it again."""
    start: BlobRef | None = None
    """The model that the next round starts from, where that is not `model`."""
    server_state: Mapping[str, BlobRef] = field(default_factory=dict)
    """What the server keeps for the next round, by role; see shared/methods/parts."""

    @property
    def done_clients(self) -> tuple[str, ...]:
        """Clients that have done their part of the current phase, sorted."""
        done = self.evaluations if self.phase is RoundPhase.EVALUATING else self.updates
        return tuple(sorted(done))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """A client's retirement from a run."""

    round: int
    """The latest round that had opened; -1 before round 0. The client is in no cohort after it."""
    is_forgotten: bool = False
    """Whether no later pool has prototypes that the client sent up to this round, and its trainer deletes what it keeps."""
    is_back: bool = False
    """Whether the client was admitted again."""
    by_owner: bool = False
    """Whether the owner of its site ended its part, and nobody else since: the owner's new approval then brings it back."""

    @property
    def keeps_nothing(self) -> bool:
        """Whether the client takes no part in the run and keeps nothing of it."""
        return self.is_forgotten and not self.is_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejections:
    """Updates of one client in one run that were refused for their content, not for their time of arrival.

    Attributes:
        count: Number of refusals since the run began or the client was released from quarantine.
        reason: Reason of the last refusal, in UPPER_SNAKE_CASE.
        detail: The sentence in the answer to the client.
        last_at: Time of the last refusal, in seconds since the epoch.
    """

    count: int
    reason: str
    check: str = ""
    detail: str = ""
    round: int = 0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training job and its latest round.

    `model` and `prototypes` are those of the last committed round: the open round starts from them, and a stopped run
    keeps them. Until round 0 has committed, `model` is the configuration's initial model, or None, and `prototypes` is the
    empty set.
    """

    run_id: str
    name: str
    status: RunStatus
    config_json: str
    config_hash: str
    method: str
    total_rounds: int
    seed: int
    roster: tuple[str, ...] = ()
    current_round: Round | None = None
    model: BlobRef | None = None
    prototypes: BlobRef | None = None
    is_pause_requested: bool = False
    reason: Reason | None = None
    """The reason why the run waits, was stopped or failed."""
    created_at: float = 0.0
    updated_at: float = 0.0
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Quarantined clients: the reason of each, by client id."""
    rejections: Mapping[str, Rejections] = field(default_factory=dict)
    """Refused updates by client id, for clients that were in a cohort."""
    start: BlobRef | None = None
    """The model that the open round starts from, where that is not `model`; of the last committed round, as is the next."""
    server_state: Mapping[str, BlobRef] = field(default_factory=dict)
    """What the server keeps from round to round, by role."""
    admitted_examples: Mapping[str, int] = field(default_factory=dict)
    """Training samples of each client as it said when it was admitted, for methods whose tasks depend on them."""
    retired: Mapping[str, Retired] = field(default_factory=dict)
    """Retirements by client id; of a client that was admitted again only one with `is_forgotten` stays."""
    num_admissions: int = 0
    """Admissions by request since the run began."""
    without_data: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Stages for which a client said that it has no image to train on, ascending, by client id."""
    stage_began: tuple[int, ...] = ()
    """First rounds of stage 2, 3 and so on, where people end the stages of the run's stream."""

    @property
    def round_number(self) -> int:
        """Number of the latest round that opened; -1 before round 0."""
        return -1 if self.current_round is None else self.current_round.number


def state_blobs(record: Run | Round) -> tuple[BlobRef, ...]:
    """Return what only the next round needs of a round's results: the model to start from and the server state."""
    return (*(() if record.start is None else (record.start,)), *record.server_state.values())


def result_blobs(record: Run | Round) -> tuple[BlobRef, ...]:
    """Return every blob of a round's results: model, prototypes, and what the next round needs."""
    return (*(blob for blob in (record.model, record.prototypes) if blob is not None), *state_blobs(record))
