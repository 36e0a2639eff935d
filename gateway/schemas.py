"""The JSON that the gateway speaks: one frozen model per document, made from the records of shared/types.py.

Whoever writes a client in Python can validate answers with these models. Times are RFC 3339 in UTC, sizes bytes, accuracies
fractions from 0 to 1, rounds whole numbers with 0 for the one that made the first model. Documents grow: a reader ignores
the keys that it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from shared import types
from shared.convert.runs import RunView
from shared.initial_model import ModelBlob
from shared.prototype_map import RoundMap
from shared.types import ClientActivity, RoundPhase, RunStatus

REQUEST_ID = r"^[!-~]{1,128}$"
"""What names a request, in the header Idempotency-Key."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Document(BaseModel):
    """A JSON object of this API."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Problem(Document):
    """An error as RFC 9457 writes it, with a stable `code` and facts for programs. Members without a value are left out."""

    type: str
    """Reference to the description of this kind of problem, below this gateway."""
    title: str
    """What kind of problem it is; the same for all of a kind."""
    status: int = Field(ge=400, le=599)
    """The HTTP status."""
    detail: str | None = None
    """What happened here, a sentence for a person."""
    instance: str | None = None
    """The path that was asked for."""
    code: str
    """The kind of problem in UPPER_SNAKE_CASE; never changes. Programs decide by this."""
    metadata: dict[str, str] | None = None
    """Facts, such as the run that already exists."""
    errors: list[FieldProblem] | None = None
    """What is wrong where, when a request does not have the documented form."""
    request_id: str | None = None
    """The request's id, as in the X-Request-ID header and the logs."""


class FieldProblem(Document):
    """One thing that is wrong with a request."""

    location: str
    """Where: "query.page_size", "body.now"; of a configuration its key, "training.batch_size"."""
    detail: str
    """What is wrong."""


class ProblemKind(Document):
    """A kind of problem: what `type` of a problem document refers to."""

    type: str
    code: str
    title: str
    status: int
    description: str


class ProblemKinds(Document):
    """Every kind of problem that the gateway answers with, by code."""

    problems: list[ProblemKind]


class InitialModel(Document):
    """A model that runs can begin with."""

    sha256: Sha256
    size_bytes: int
    initial_model: str
    """What a run's configuration writes as `run.initial_model`."""

    @classmethod
    def of(cls, blob: types.BlobRef) -> Self:
        """The document of a model that the aggregator holds."""
        return cls(sha256=blob.sha256, size_bytes=blob.size_bytes, initial_model=str(ModelBlob(blob.sha256)))


class RunLinks(Document):
    """Where the parts of a run are."""

    self: str
    manifest: str
    rounds: str
    metrics: str
    timings: str
    evaluations: str
    events: str
    model: str
    prototypes: str
    prototype_map: str = ""

    @classmethod
    def of(cls, run_id: str) -> Self:
        """The links of a run."""
        base = f"/v1/runs/{run_id}"
        return cls(
            self=base,
            manifest=f"{base}/manifest",
            rounds=f"{base}/rounds",
            metrics=f"{base}/metrics.jsonl",
            timings=f"{base}/timings.jsonl",
            evaluations=f"{base}/evaluations",
            events=f"{base}/events",
            model=f"{base}/model",
            prototypes=f"{base}/prototypes",
            prototype_map=f"{base}/prototype-map",
        )


class Rejections(Document):
    """Updates of one client that were refused for what they are: wrong numbers, layout, counts or size. Late ones do not
    count.
    """

    client_id: str
    count: int
    """How many, since the run began or the client was released from quarantine."""
    reason: str
    """Why the last one was refused, in UPPER_SNAKE_CASE."""
    check: str
    """Which check refused it."""
    detail: str
    """What the client was told; cut if it is long."""
    round: int
    """For which round it was."""
    last_at: datetime
    """When it was refused."""

    @classmethod
    def of(cls, client_id: str, refused: types.Rejections) -> Self:
        """The document of what was refused of a client."""
        return cls(
            client_id=client_id,
            count=refused.count,
            reason=refused.reason,
            check=refused.check,
            detail=refused.detail,
            round=refused.round,
            last_at=_time(refused.last_at),
        )


class QuarantinedClient(Document):
    """A client that takes no part in a run."""

    client_id: str
    reason: str
    """Why."""


class Run(Document):
    """A run and its latest round."""

    run_id: str
    name: str
    """Its name in the configuration; not unique."""
    status: RunStatus
    method: str
    round: int
    """The latest round that opened; -1 before round 0."""
    total_rounds: int
    """Rounds after round 0."""
    phase: RoundPhase | None
    """Phase of that round; null before round 0."""
    roster: list[str]
    """Clients of the run, sorted."""
    cohort: list[str]
    """Clients of that round, sorted."""
    done_clients: list[str]
    """Those whose part in the present phase is done, sorted."""
    is_pause_requested: bool
    """Whether a pause waits for the open round to commit."""
    reason: str
    """Why it waits, failed or stopped; empty if there is nothing to say."""
    created_at: datetime
    updated_at: datetime
    config: dict[str, Any]
    """The configuration with the defaults filled in."""
    config_hash: Sha256
    """SHA-256 of the configuration's canonical JSON."""
    links: RunLinks
    rejections: list[Rejections] = []
    """Clients whose updates were refused for what they are, by id; at most 1000, those of the latest refusals."""
    quarantined: list[QuarantinedClient] = []
    """Clients that take no part in it, by id."""

    @classmethod
    def of(cls, view: RunView) -> Self:
        """The document of a run."""
        run, current = view.run, view.run.round
        return cls(
            run_id=run.run_id,
            name=run.name,
            status=run.status,
            method=run.method,
            round=run.round_number,
            total_rounds=run.total_rounds,
            phase=current.phase if current else None,
            roster=list(run.roster),
            cohort=list(current.cohort) if current else [],
            done_clients=list(view.done_clients),
            is_pause_requested=run.is_pause_requested,
            reason=run.reason,
            created_at=_time(run.created_at),
            updated_at=_time(run.updated_at),
            config=json.loads(run.config_json),
            config_hash=run.config_hash,
            links=RunLinks.of(run.run_id),
            rejections=[Rejections.of(*entry) for entry in sorted(run.rejections.items())],
            quarantined=[
                QuarantinedClient(client_id=client_id, reason=why) for client_id, why in sorted(run.quarantined.items())
            ],
        )


class RunPage(Document):
    """Runs, newest first."""

    runs: list[Run]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""

    @classmethod
    def of(cls, views: Sequence[RunView], next_page_token: str) -> Self:
        """A page of runs."""
        return cls(runs=[Run.of(view) for view in views], next_page_token=next_page_token or None)


class Blob(Document):
    """Bytes by name."""

    sha256: Sha256
    size_bytes: int

    @classmethod
    def of(cls, blob: types.BlobRef) -> Self:
        """The document of a blob."""
        return cls(sha256=blob.sha256, size_bytes=blob.size_bytes)


class PrototypeCounts(Document):
    """How many prototypes a round had."""

    local: int
    """Uploaded by the cohort."""
    global_: int = Field(alias="global")
    """Made of them by the aggregator."""


class DroppedClient(Document):
    """A client of the cohort that a round went on without."""

    client_id: str
    reason: str
    """lost (not connected), silent (no progress), problem (it said that it cannot do its task) or quarantined."""
    detail: str
    """What else there is to say, for a person."""


class RoundMetrics(Document):
    """A line of metrics.jsonl: what a committed round computed. Equal federations give equal lines."""

    model_config = ConfigDict(extra="allow")

    round: int
    accuracy: dict[str, float | None]
    """Fraction of test samples right, by domain, and their "mean" and "worst"; null where nobody reported. Of the global
    model, unless `accuracy_of` says otherwise."""
    accuracy_of: str | None = None
    """"local" where `accuracy` is that of the clients' own models: the run shares none, and its global model stays the first
    one. Else null."""
    accuracy_local: dict[str, float | None] | None = None
    """As `accuracy`, of the clients' own models, each on its client's test set; null where they have none."""
    loss: dict[str, float]
    """Mean training loss by term."""
    prototypes: PrototypeCounts
    num_examples: int
    cohort: list[str]
    dropped: list[str] = []
    """Clients of the cohort whose update or report is not among these values, sorted."""
    model_sha256: Sha256
    prototypes_sha256: Sha256


class Round(Document):
    """One round of a run."""

    round: int
    """Its number; 0 made the first model."""
    phase: RoundPhase
    cohort: list[str]
    """Its clients, sorted."""
    dropped: list[DroppedClient]
    """Those that it went on without, by client id; while it is open, those that it does not wait for."""
    model: Blob | None
    """Global model after the round; null until it is aggregated."""
    prototypes: Blob | None
    """Global prototypes after the round; null until they are aggregated."""
    metrics: RoundMetrics | None
    """Its line of metrics.jsonl; null until it has committed, and for round 0."""

    @classmethod
    def of(cls, current: types.Round) -> Self:
        """The document of a round."""
        return cls(
            round=current.number,
            phase=current.phase,
            cohort=list(current.cohort),
            dropped=[_dropped(*entry) for entry in sorted(current.dropped.items())],
            model=Blob.of(current.model) if current.model else None,
            prototypes=Blob.of(current.prototypes) if current.prototypes else None,
            metrics=RoundMetrics.model_validate_json(current.metrics_json) if current.metrics_json else None,
        )


def _dropped(client_id: str, why: str) -> DroppedClient:
    reason, _, detail = why.partition(": ")
    return DroppedClient(client_id=client_id, reason=reason, detail=detail)


class RoundPage(Document):
    """Rounds of a run in order."""

    rounds: list[Round]
    next_after: int | None
    """`after` of the next page; null when this page was not full."""

    @classmethod
    def of(cls, rounds: Sequence[types.Round], page_size: int) -> Self:
        """A page of rounds."""
        is_full = len(rounds) == page_size
        return cls(rounds=[Round.of(current) for current in rounds], next_after=rounds[-1].number if is_full else None)


class MappedClient(Document):
    """A client whose prototypes a map shows."""

    client_id: str
    domain: str
    is_kept: bool
    """Whether its prototypes of the round are still there; those that are not are missing on the map."""


class MappedPrototype(Document):
    """A prototype on the plane."""

    x: float
    y: float
    """Upwards; the mean of what the local prototypes stand for lies at 0, 0."""
    class_id: int
    """Index into `data.classes` of the run's configuration."""
    client: int | None
    """Whose it is, an index into `clients`; null for a global prototype."""
    weight: float
    """Samples that a local prototype stands for; of a global one the weight that the method gives it."""
    share: float = Field(ge=0, le=1)
    """Its share of the weight that its class has in the set it comes from."""
    nearest: int | None
    """Of a local prototype: the nearest global one of its class, an index into `prototypes`, by what the method compares and
    in the whole feature space."""


class RoundSpan(Document):
    """Rounds that follow one another."""

    first: int
    last: int


class PrototypeMap(Document):
    """A round's prototypes on a plane that is steady from round to round."""

    round: int
    comparison: types.Comparison
    """How the method compares prototypes: by the angle (places are those of unit vectors), or by the distance."""
    explained: float = Field(ge=0, le=1)
    """Share of the local prototypes' variance that the plane shows."""
    clients: list[MappedClient]
    """Who sent prototypes, by id."""
    prototypes: list[MappedPrototype]
    """Global ones first, each kind from the heaviest on."""
    left_out_global: int
    """Lighter global prototypes that were left out."""
    left_out_local: int
    """Lighter local prototypes that were left out."""
    rounds: list[RoundSpan]
    """Rounds that can be asked for, rising."""
    aligned_from: int
    """The round that all maps are aligned with. Where it is another than in a map before, all are turned or mirrored alike,
    and those that came before do not fit any more."""

    @classmethod
    def of(cls, found: RoundMap) -> Self:
        """The document of a round's map."""
        drawn = found.drawn
        rows = zip(
            drawn.places_N2.tolist(),
            drawn.class_ids_N.tolist(),
            drawn.owners_N.tolist(),
            drawn.weights_N.tolist(),
            drawn.shares_N.tolist(),
            drawn.nearest_N.tolist(),
            strict=True,
        )
        return cls(
            round=found.number,
            comparison=found.comparison,
            explained=drawn.explained,
            clients=[
                MappedClient(client_id=client.client_id, domain=client.domain, is_kept=client.is_kept)
                for client in found.clients
            ],
            prototypes=[
                MappedPrototype(
                    x=_shown(x),
                    y=_shown(y),
                    class_id=class_id,
                    client=owner if owner >= 0 else None,
                    weight=_shown(weight),
                    share=_shown(share),
                    nearest=nearest if nearest >= 0 else None,
                )
                for (x, y), class_id, owner, weight, share, nearest in rows
            ],
            left_out_global=drawn.left_out_global,
            left_out_local=drawn.left_out_local,
            rounds=[RoundSpan(first=first, last=last) for first, last in found.rounds],
            aligned_from=found.aligned_from,
        )


def _shown(value: float) -> float:
    """What a picture can show of a number: seven digits, that of single precision."""
    return float(f"{value:.7g}")


class EvaluationCounts(Document):
    """Correct and total predictions per class of one evaluation set."""

    set_name: str
    """The evaluation set; "test" unless the client has others."""
    model: str
    """Which model was evaluated: "global" or "local"."""
    correct: list[int]
    """Correct predictions per class, in the order of the run's classes."""
    total: list[int]
    """Samples per class, in the order of the run's classes."""


class Evaluation(Document):
    """What one client reported for one round."""

    round: int
    client_id: str
    domain: str
    counts: list[EvaluationCounts]

    @classmethod
    def of(cls, round_number: int, evaluation: types.Evaluation) -> Self:
        """The document of a report."""
        counts = [
            EvaluationCounts(
                set_name=entry.set_name, model=entry.model, correct=list(entry.correct), total=list(entry.total)
            )
            for entry in evaluation.counts
        ]
        return cls(round=round_number, client_id=evaluation.client_id, domain=evaluation.domain, counts=counts)


class EvaluationPage(Document):
    """Reports by round and client."""

    evaluations: list[Evaluation]
    next_after: int | None
    """`after` of the next page; null at the end."""


class Event(Document):
    """One entry of the history."""

    sequence: int
    """Position in the history, rising; the cursor of `after` and Last-Event-ID."""
    time: datetime
    type: str
    """Name, for instance "round_opened"."""
    run_id: str | None
    round: int | None
    """The round; null where none is meant."""
    client_id: str | None
    data: dict[str, Any]
    """Details; for "round_committed" the line of metrics.jsonl."""

    @classmethod
    def of(cls, event: types.Event) -> Self:
        """The document of an event."""
        return cls(
            sequence=event.sequence,
            time=_time(event.time),
            type=event.type,
            run_id=event.run_id or None,
            round=event.round if event.round >= 0 else None,
            client_id=event.client_id or None,
            data=dict(event.data),
        )


class EventPage(Document):
    """Events of a run, in order or newest first."""

    events: list[Event]
    next_after: int
    """`after` of what comes later: of the next page, or of a stream; as it was asked for when there is nothing new."""
    has_ended: bool
    """Whether the run has ended and no event comes after those of this page."""
    next_before: int | None = None
    """`before` of the next page when the newest come first; null when there are no older ones, and in order."""

    @classmethod
    def of(
        cls, events: Sequence[types.Event], page_size: int, *, after: int, newest_first: bool, is_final: bool
    ) -> Self:
        """A page; `after` is what it was asked for with, `is_final` whether the history is complete."""
        is_full = len(events) == page_size
        return cls(
            events=[Event.of(event) for event in events],
            next_after=max((event.sequence for event in events), default=after),
            has_ended=is_final and (newest_first or not is_full),
            next_before=events[-1].sequence if newest_first and is_full else None,
        )


class ClientEnvironment(Document):
    """What a trainer computes on."""

    packages: dict[str, str]
    cpu: str
    device: str
    platform: str


class ClientProblem(Document):
    """What keeps a trainer from its task, or what its operator should know."""

    reason: str
    detail: str
    hint: str
    is_fatal: bool


class Client(Document):
    """A client as the aggregator knows it."""

    client_id: str
    domain: str
    is_connected: bool
    activity: ClientActivity
    run_id: str | None
    """The run that it works on."""
    round: int | None
    """The round that it works on."""
    progress: float
    """Fraction of the present activity that is done."""
    num_examples: int
    class_counts: dict[str, int]
    environment: ClientEnvironment
    last_seen_at: datetime | None
    problem: ClientProblem | None
    readings: dict[str, float]
    """Its last readings, by name with unit as suffix."""

    @classmethod
    def of(cls, client: types.Client) -> Self:
        """The document of a client."""
        environment, problem = client.environment, client.problem
        return cls(
            client_id=client.client_id,
            domain=client.domain,
            is_connected=client.is_connected,
            activity=client.activity,
            run_id=client.run_id or None,
            round=client.round if client.run_id else None,
            progress=client.progress,
            num_examples=client.num_examples,
            class_counts=dict(client.class_counts),
            environment=ClientEnvironment(
                packages=dict(environment.packages),
                cpu=environment.cpu,
                device=environment.device,
                platform=environment.platform,
            ),
            last_seen_at=_time(client.last_seen_at) if client.last_seen_at else None,
            problem=ClientProblem(
                reason=problem.reason, detail=problem.detail, hint=problem.hint, is_fatal=problem.is_fatal
            )
            if problem
            else None,
            readings=dict(client.readings),
        )


class ClientList(Document):
    """Every client that ever joined, by id."""

    clients: list[Client]


class MethodChoice(Document):
    """A method that a run may have."""

    name: str
    """As a configuration writes it in `run.method`."""
    title: str
    """As its paper writes it."""
    summary: str
    """What it does, in a sentence."""
    paper: str
    """Where it is published."""
    has_prototypes: bool
    """Whether its clients upload prototypes."""
    settings: dict[str, Any]
    """JSON Schema of its hyper-parameters, the section `[method]`, with defaults and what each key means."""


class ModelChoice(Document):
    """A model that is built in."""

    name: str
    """As a configuration writes it in `model.name`."""
    stems: list[str]
    """The stems that it may have, the usual one first; empty where there is none to choose."""


class ModelForm(Document):
    """A form in which `model.name` may name other models."""

    form: str
    """How the name is written."""
    summary: str
    """What it names."""


class RunConfigurationForm(Document):
    """What a run may be configured with: enough to make a form."""

    sections: dict[str, dict[str, Any]]
    """JSON Schema of each section by its name, with what each key means; `[method]` is in `methods`."""
    defaults: dict[str, dict[str, Any]]
    """By section, what each key is where it is not written; null where it is not set then. A key without one must be."""
    methods: list[MethodChoice]
    models: list[ModelChoice]
    model_forms: list[ModelForm]
    timm_options: dict[str, Any]
    """JSON Schema of `model.options` of a model timm:NAME."""


class ConfigurationCheck(Document):
    """What is wrong with a run's configuration, or what it comes to. Nothing was created."""

    problems: list[FieldProblem]
    """Everything that is wrong, each at its key ("training.batch_size", "data.classes.3"), at its section, or, where the
    whole is meant, at ""; empty if it can be posted."""
    config: dict[str, Any] | None
    """The configuration with the defaults filled in; null if something is wrong."""
    config_hash: Sha256 | None
    """SHA-256 of its canonical JSON: the run's, unless it begins with a model that a run or a file is named for."""
    toml: str | None
    """What was sent, as the TOML file that `fedplcc run start --config FILE` takes; null if something is wrong, or
    where TOML cannot say it."""


class PauseRequest(Document):
    """How to pause."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False
    """Interrupts the open round at once; it starts again on resume from the same model with the same cohort."""


class StopRequest(Document):
    """Why to stop."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history."""


class QuarantineRequest(Document):
    """Why to leave a client out."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=500)
    """For the history, and for the client."""


class Health(Document):
    """That a process is there."""

    status: str
    service: str
    version: str


class Readiness(Health):
    """What a process needs, and whether it has it."""

    checks: dict[str, str]
    """By part: "ok"."""


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
