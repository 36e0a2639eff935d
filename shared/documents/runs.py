"""Documents of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import Field

from shared import types
from shared.convert.runs import RunView
from shared.documents.document import Document, Sha256, utc_time
from shared.reasons import sentence_of
from shared.types import RoundPhase, RunStatus


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
        return cls(
            client_id=client_id,
            count=refused.count,
            reason=refused.reason,
            check=refused.check,
            detail=refused.detail,
            round=refused.round,
            last_at=utc_time(refused.last_at),
        )


class QuarantinedClient(Document):
    """A client that is excluded from a run."""

    client_id: str
    reason: str
    """Reason of the quarantine."""


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
    """Clients whose part of the present phase is done, sorted."""
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

    @classmethod
    def of(cls, view: RunView) -> Self:
        """Return the document of a run."""
        run, current = view.run, view.run.current_round
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
            reason=sentence_of(run.reason),
            created_at=utc_time(run.created_at),
            updated_at=utc_time(run.updated_at),
            config=dict(view.config),
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
        """Return a page of runs."""
        return cls(runs=[Run.of(view) for view in views], next_page_token=next_page_token or None)
