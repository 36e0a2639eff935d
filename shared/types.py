"""Frozen records of the domain: runs, rounds, updates, clients, tasks and events.

Values only: no clock, no I/O. Counts are integers, sizes bytes, times seconds since the epoch (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fedplcc.shared.reasons import Dropped, Reason

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


class RunStatus(StrEnum):
    """State of a run; the transitions are in aggregator/rounds/machine/run_moves.py."""

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


class TaskKind(StrEnum):
    """Kinds of tasks for a trainer."""

    INIT = "init"
    TRAIN = "train"
    EVALUATE = "evaluate"
    WAIT = "wait"
    STOP = "stop"


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


MODEL = "model"
"""Role of the tensor group that holds the whole model."""
START = "start"
"""Name of the model that the next round starts from, where that is not the round's result."""
FEATURE_DIM = "feature_dim"
"""Integer list of round 0's update: the model's feature size D, one number."""
PARAMETERS, HEAD, BATCH_NORM = "parameters", "head", "batch_norm"
TENSOR_LISTS = (PARAMETERS, HEAD, BATCH_NORM)
"""Integer lists of round 0's update: which tensors are trained, belong to the head, belong to BatchNorm layers.

Each is ascending; a number is a tensor's place in the model's file, from 0.
"""
PUBLIC_DATA = "public_data"
"""Integer list of an update in a run with public images: the 32 bytes of the SHA-256 of the images that its sender has.
That of round 0's update is the run's."""
STREAM_PLACE = "stream_place"
"""Integer list of an update in a run with stages: pass and stage of the data that it was trained on."""
STAGE_DATA = "stage_data"
"""Integer list of an update in a run with stages: the 32 bytes of the SHA-256 of the images that it was trained on."""
CLASS_MEAN = "class_mean"
"""Kind of the prototypes that a client uploads: one mean per class, with sample counts."""
LOCAL_CLUSTER = "local_cluster"
"""Kind of the prototypes that a client uploads (FINCH* centres with sample counts)."""
GLOBAL_CLUSTER = "global_cluster"
"""Kind of the prototypes that the aggregator sends (FINCH* centres with normalised weights)."""
Comparison = Literal["cosine", "distance"]
"""How a method compares prototypes: by the angle between them, or by the Euclidean distance."""
GLOBAL_MODEL = "global"
"""Name of the round's global model in a report."""
LOCAL_MODEL = "local"
"""Name of the client's own model, of its last committed update, in a report."""
ALONE_MODEL = "alone"
"""Name of the model that a client has of its own images alone, in a report: what joining is worth is measured by it."""
LAST, BEST = -1, -2
"""Choice of a round for its model and prototypes: the last committed one, the best one by validation."""
TEST_SET, VALIDATION_SET = "test", "validation"
"""Name of a client's test set in a report."""
HISTOGRAM_SETS = (TEST_SET, VALIDATION_SET)
"""Sets whose reports may have histograms."""


BALANCED_SET = "all"
"""Name of a client's part of the whole test set in a report of a run with stages, where its data are a part of a set."""


def stage_set(stage: int) -> str:
    """Return the name of a client's test images of a stage: "stage-1"."""
    return f"stage-{stage}"


def own_set(set_name: str) -> str:
    """Return the name of a set on which a client chooses among its own classes: "test/own"."""
    return f"{set_name}/own"


def attacked_set(attack: str) -> str:
    """Return the name of a client's test set under an attack: "test/fgsm"."""
    return f"{TEST_SET}/{attack}"


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob by name: role within its payload, lowercase hexadecimal SHA-256, size."""

    role: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The five generic containers in which every method sends its data, in both directions."""

    tensor_groups: tuple[BlobRef, ...] = ()
    prototype_sets: tuple[BlobRef, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    int_lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        """Every blob: tensor groups, then prototype sets."""
        return self.tensor_groups + self.prototype_sets

    def tensor_group(self, role: str) -> BlobRef | None:
        """The tensor group with this role, if there is one."""
        return next((blob for blob in self.tensor_groups if blob.role == role), None)

    def prototype_set(self, kind: str) -> BlobRef | None:
        """The prototype set of this kind, if there is one."""
        return next((blob for blob in self.prototype_sets if blob.role == kind), None)


@dataclass(frozen=True, slots=True, eq=False)
class PrototypeSet:
    """Prototypes as one dense matrix; classes may have different numbers of rows, or none.

    Attributes:
        vectors: float32 `[n, D]`, not normalised; D is 0 while the feature size is unknown.
        class_ids: int64 `[n]`, each in [0, M).
        weights: float32 `[n]`, positive: sample counts on upload, normalised per class on download (FedPLCC, eq. 11).
        group_ids: int64 `[n]`, owner or cluster where a method needs one, else -1.
    """

    vectors: FloatArray
    class_ids: IntArray
    weights: FloatArray
    group_ids: IntArray

    def __len__(self) -> int:
        return len(self.class_ids)

    @property
    def num_groups(self) -> int:
        """Number of different group ids."""
        return len(np.unique(self.group_ids))

    @classmethod
    def empty(cls, dim: int = 0) -> PrototypeSet:
        """Return a set without rows, of feature size `dim`."""
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, dim), np.float32), none, np.zeros(0, np.float32), none)

    @classmethod
    def of(cls, vectors: npt.ArrayLike, class_ids: npt.ArrayLike, weights: npt.ArrayLike) -> PrototypeSet:
        """Return a set without group ids, from anything that numpy can convert."""
        ids = np.asarray(class_ids, dtype=np.int64)
        rows = np.asarray(vectors, dtype=np.float32)
        return cls(rows, ids, np.asarray(weights, dtype=np.float32), np.full(len(ids), -1, dtype=np.int64))


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
class ScoreHistograms:
    """Samples of an evaluation set by the probabilities that the model gives them; see shared/score_histograms.py.

    Attributes:
        of_class: Samples of each class by the bin of that class's probability, `[M * SCORE_BINS]`, class by class.
        of_others: Samples of all other classes by the bin of that class's probability, likewise.
        confidence: Samples by the bin of their largest probability, `[CONFIDENCE_BINS]`.
        confidence_correct: Those of them that were predicted correctly.
    """

    of_class: tuple[int, ...]
    of_others: tuple[int, ...]
    confidence: tuple[int, ...]
    confidence_correct: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Samples of which the largest probability lies in one bin of a reliability diagram.

    Attributes:
        confidence: Mean of these probabilities.
        accuracy: Share of the samples that were predicted correctly.
        num_examples: Number of samples, at least one.
    """

    confidence: float
    accuracy: float
    num_examples: int


@dataclass(frozen=True, slots=True)
class EvaluationCounts:
    """Correct and total predictions per class of one evaluation set under the global, the local or the alone model.

    Attributes:
        confusion: Samples of each class by the class that the model predicted, `[M * M]`: a row for each true class, one
            after the other. Empty unless the run asks for it. A sample without a predicted class is in no column.
        histograms: Probabilities of a set whose classes are predicted by logits; None unless the run asks for them.
    """

    set_name: str
    model: str
    correct: tuple[int, ...]
    total: tuple[int, ...]
    confusion: tuple[int, ...] = ()
    histograms: ScoreHistograms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One client's report for one round, on the global model and, if the method has one, on the client's own."""

    client_id: str
    domain: str
    counts: tuple[EvaluationCounts, ...]
    timings: Mapping[str, float] = field(default_factory=dict)


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
        times: How often it was asked in this round.
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
        check: The check that refused it.
        detail: The sentence in the answer to the client.
        round: Round of the refused update.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """The specification of a run for trainers, the same for every round."""

    run_id: str
    config_json: str
    config_hash: str


TaskKey: TypeAlias = tuple[str, int, TaskKind, int]
"""Run (or ""), round and kind of a task, and how often its update was asked for again; equal keys mean the same work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a trainer; a function of the run's state."""

    kind: TaskKind
    run: RunSpec | None = None
    round: int = 0
    total_rounds: int = 0
    payload: Payload = Payload()
    detail: str = ""
    missing: tuple[str, ...] = ()
    """SHA-256 of blobs of the client's own update of this round that were damaged at the aggregator: it sends them again."""
    times_asked: int = 0
    """How often the client was asked for its update of this round again."""

    @property
    def key(self) -> TaskKey:
        """Key of the work; tasks that differ only in `detail` have equal keys."""
        return (self.run.run_id if self.run else "", self.round, self.kind, self.times_asked)

    @property
    def idle_reasons(self) -> Mapping[str, str]:
        """Reasons why runs of this client have no work for it: an `IdleReason` by run id. Only WAIT has them."""
        return self.payload.metadata if self.kind is TaskKind.WAIT else {}


@dataclass(frozen=True, slots=True)
class Poll:
    """A request for a task other than the known one; the aggregator answers within `hold_s` seconds."""

    known: TaskKey | None
    hold_s: float


@dataclass(frozen=True, slots=True)
class TakenInline:
    """Small blobs that a trainer takes inside tasks: most bytes with one task, and SHA-256 of those that it holds."""

    max_bytes: int
    held: frozenset[str] = frozenset()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the append-only history; `sequence` is 0 until it is written."""

    type: str
    run_id: str = ""
    round: int = -1
    client_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    sequence: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """A query of the history, with at most `limit` entries: in order, or the newest first."""

    run_id: str = ""
    """Only events of this run, if given."""
    after: int = 0
    """Only events with a greater sequence."""
    before: int = 0
    """Only events with a smaller sequence; 0 for no limit."""
    types: tuple[str, ...] = ()
    """Only events of these types, if given."""
    client_id: str = ""
    """Only events of this client, if given."""
    newest_first: bool = False
    limit: int = 1000
