"""Documents of runs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Self

from pydantic import Field

from fedplcc.shared import run_lists, types
from fedplcc.shared.chance import RunWarningKind
from fedplcc.shared.config.initial_model import RunId
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.documents.document import Document, Sha256, utc_time
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.scoring.scores import Score
from fedplcc.shared.types import RoundPhase, RunStatus


class RunLinks(Document):
    """Paths of a run's parts."""

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
        """Return the links of a run."""
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
    """Refused updates of one client with wrong numbers, layout, counts or size; late updates do not count."""

    client_id: str
    count: int
    """Number of refusals since the run began or the client's quarantine ended."""
    reason: str
    """Reason of the last refusal, in UPPER_SNAKE_CASE."""
    check: str
    """The check that refused it."""
    detail: str
    """The message to the client; cut if it is long."""
    round: int
    """Round of the refused update."""
    last_at: datetime
    """Time of the last refusal."""

    @classmethod
    def of(cls, client_id: str, refused: types.Rejections) -> Self:
        """Return the document of a client's refused updates."""
        return cls.like(refused, client_id=client_id, last_at=utc_time(refused.last_at))


class QuarantinedClient(Document):
    """A client that is excluded from a run."""

    client_id: str
    reason: str
    """Reason of the quarantine."""


class RetiredClient(Document):
    """A client that was retired from a run."""

    client_id: str
    round: int
    """The latest round that had opened; -1 before round 0."""
    is_forgotten: bool
    """Whether later pools are without its prototypes and its trainer deletes what it keeps."""


class RunWarning(Document):
    """Trouble of a run that goes on all the same."""

    kind: RunWarningKind
    round: int
    """The first of the rounds that show it."""
    sentence: str
    """The fact and what mends it."""
    keys: list[str]
    """Configuration keys that mend it in a new run, the likeliest first."""


class ScoreValue(Document):
    """A score, and how far it may move with other test images of the same sites."""

    value: float
    low: float
    """Lower bound of an interval of 95 %."""
    high: float


class RunScore(Document):
    """The score of the round that was committed last, where it was evaluated."""

    name: Score
    round: int
    mean: ScoreValue
    """Mean over domains."""
    worst: ScoreValue
    """Of the worst domain."""
    macro_f1: ScoreValue | None = None
    """Mean over domains of the macro F1; null where clients do not report confusion."""
    auc: ScoreValue | None = None
    """Mean over domains of the mean area under the classes' ROC curves; null without histograms."""

    @classmethod
    def of(cls, manifest_json: str) -> Self | None:
        """Return the document of what a run's manifest says of its score; None where it says nothing."""
        found = json.loads(manifest_json or "{}").get("score")
        if found is None:
            return None
        values = {name: ScoreValue(**found["values"][name]) for name in ("mean", "worst")}
        beside = {name: ScoreValue(**each["mean"]) for name, each in found.get("beside", {}).items()}
        return cls(name=found["name"], round=found["round"], **values, **beside)


class RoundBytes(Document):
    """Bytes of models, prototypes and arrays that a round moves, training and evaluation together."""

    clients: int
    """Clients of a round."""
    up: int
    """What a client sends, but for prototypes."""
    down: int
    """What a client receives, but for prototypes."""
    first_down: int
    """The same in its first round."""
    prototypes_up: int
    """At most as many more bytes of prototypes that the client with the most images sends."""
    prototypes_down: int
    """At most as many more that a client receives."""
    all_up: int
    """What all clients of the round send, with prototypes."""
    all_down: int
    """What they receive."""
    is_bound: bool
    """Whether a round may move less: prototypes, a model that a client may hold already, arrays whose size depends on
    data."""

    @classmethod
    def of(cls, manifest_json: str) -> Self | None:
        """Return the document of what a run's manifest says of it; None where it says nothing."""
        found = json.loads(manifest_json or "{}").get("round_bytes")
        return None if found is None else cls(**found)


class Run(Document):
    """A run and its latest round."""

    run_id: RunId
    """Its id; commands make folders of this name."""
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
    """Clients whose part of the present phase is done, sorted."""
    best_round: int | None = None
    """The round with the highest mean accuracy on validation images, the first one of several; null where none was
    validated. Its model is kept."""
    score: RunScore | None = None
    """Score of the round that was committed last, with intervals by the number of test images; null where it was not
    evaluated."""
    is_pause_requested: bool
    """Whether the run pauses when the open round commits."""
    reason: str
    """Reason why the run waits, failed or stopped; else empty."""
    created_at: datetime
    updated_at: datetime
    config: dict[str, Any]
    """The configuration with its defaults."""
    config_hash: Sha256
    """SHA-256 of the configuration's canonical JSON."""
    links: RunLinks
    rejections: list[Rejections] = Field([])
    """Clients with refused updates, by id; at most 1000, those of the latest refusals."""
    quarantined: list[QuarantinedClient] = Field([])
    """Clients in quarantine, by id."""
    retired: list[RetiredClient] = Field([])
    """Clients of the roster that were retired and not admitted again, by id."""
    tags: list[str] = Field([])
    """Its tags, sorted."""
    notes: str = ""
    """What people note about it, plain text."""
    is_archived: bool = False
    """Whether lists that do not ask for it leave it out."""
    warnings: list[RunWarning] = Field([])
    """Trouble with which the run goes on all the same, such as accuracy at chance for ten evaluated rounds."""
    server_state: dict[str, int] = Field({})
    """Bytes of what the server keeps for the next round besides model and prototypes, by role: the method's slots and
    arrays, and `start` where the next round starts from another model than the result."""
    round_bytes: RoundBytes | None = None
    """Bytes that a round moves, known before round 1 begins; null before the run's first model is made."""

    @classmethod
    def of(cls, view: RunView) -> Self:
        """Return the document of a run."""
        run, current = view.run, view.run.current_round
        return cls.like(
            run,
            round=run.round_number,
            phase=current.phase if current else None,
            cohort=current.cohort if current else (),
            done_clients=view.done_clients,
            best_round=view.best_round,
            score=RunScore.of(view.manifest_json),
            reason=sentence_of(run.reason),
            created_at=utc_time(run.created_at),
            updated_at=utc_time(run.updated_at),
            config=view.config,
            links=RunLinks.of(run.run_id),
            rejections=[Rejections.of(*entry) for entry in sorted(run.rejections.items())],
            quarantined=[
                QuarantinedClient(client_id=client_id, reason=why) for client_id, why in sorted(run.quarantined.items())
            ],
            retired=[
                RetiredClient.like(retired, client_id=client_id) for client_id, retired in sorted(run.retired.items())
            ],
            tags=view.labels.tags,
            notes=view.labels.notes,
            is_archived=view.labels.is_archived,
            warnings=[RunWarning.like(each) for each in view.warnings],
            server_state=view.server_state_bytes,
            round_bytes=RoundBytes.of(view.manifest_json),
        )


class RunSummary(Document):
    """A run in a list: without its configuration and its clients."""

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
    """Phase of that round; null before round 0, and where the run was deleted."""
    num_clients: int
    is_pause_requested: bool
    """Whether the run pauses when the open round commits."""
    reason: str
    """Reason why the run waits, failed or stopped; else empty."""
    created_at: datetime
    updated_at: datetime
    config_hash: Sha256
    """SHA-256 of the configuration's canonical JSON."""
    tags: list[str]
    """Its tags, sorted."""
    is_archived: bool
    is_deleted: bool
    score: Score
    """What the next two are: accuracy, or balanced accuracy, the mean of the classes' recalls, where test images of classes
    are uneven or the configuration says so (`evaluation.score`)."""
    mean_accuracy: float | None
    """Mean over the domains in the last committed round that was evaluated, 0 to 1; null before one was."""
    worst_accuracy: float | None
    """The least one of a domain in that round."""
    worst_domain: str | None
    """The domain that has it."""
    links: RunLinks

    @classmethod
    def of(cls, run: run_lists.RunSummary) -> Self:
        """Return the document of a run in a list."""
        return cls.like(
            run,
            reason=sentence_of(run.reason),
            created_at=utc_time(run.created_at),
            updated_at=utc_time(run.updated_at),
            worst_domain=run.worst_domain or None,
            links=RunLinks.of(run.run_id),
        )


class RunTotals(Document):
    """Numbers of runs by status; runs that are stopping count as running."""

    pending: int = 0
    running: int = 0
    paused: int = 0
    completed: int = 0
    stopped: int = 0
    failed: int = 0


class RunPage(Document):
    """Runs that match the filters, in the order asked for."""

    runs: list[RunSummary]
    total: int
    """Number of runs on all pages: those that match all filters."""
    totals: RunTotals
    """Numbers of the runs that match all filters but `status`."""
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""

    @classmethod
    def of(cls, found: run_lists.RunList, next_page_token: str) -> Self:
        """Return a page of runs."""
        return cls(
            runs=[RunSummary.of(run) for run in found.runs],
            total=found.total,
            totals=RunTotals(**{status.value: number for status, number in found.totals.items()}),
            next_page_token=next_page_token or None,
        )


class DeletedRun(Document):
    """What the deletion of a run freed."""

    run_id: str
    freed_bytes: int
    """Bytes of the files that are gone from the aggregator's disk. What somebody reads just now, or a backup keeps, goes
    later and does not count."""
