"""The state of a run, reduced from its document, its events in order and the list of clients. Pure.

Every view of a run on a terminal reads this one record; times come with the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fedplcc.shared.chance import ROUNDS, RunWarning, warnings_of
from fedplcc.shared.documents import Client, Event, Round, Run
from fedplcc.shared.scores import unfound_warning
from fedplcc.shared.types import RoundPhase, RunStatus
from fedplcc.terminal.event_sentences import sentence_of

PHASES_OF_CLIENTS = frozenset((RoundPhase.INITIALISING, RoundPhase.COLLECTING, RoundPhase.EVALUATING))
"""Phases in which a round waits for clients; in the others the aggregator works."""
STATUS_AFTER = {
    "run_created": RunStatus.PENDING,
    "run_started": RunStatus.RUNNING,
    "run_paused": RunStatus.PAUSED,
    "run_parked": RunStatus.PAUSED,
    "run_resumed": RunStatus.RUNNING,
    "run_stopping": RunStatus.STOPPING,
    "run_stopped": RunStatus.STOPPED,
    "run_completed": RunStatus.COMPLETED,
    "run_extended": RunStatus.RUNNING,
    "run_failed": RunStatus.FAILED,
}


@dataclass(slots=True)
class RunHistory:
    """A run as its events, its document and its clients show it."""

    run_id: str = ""
    method: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's configuration; without it no warning is found."""
    total_rounds: int = 0
    status: RunStatus = RunStatus.PENDING
    round: int = -1
    """The latest round that opened; -1 before round 0."""
    phase: str = ""
    cohort: frozenset[str] = frozenset()
    done: set[str] = field(default_factory=set)
    """Clients that have done their part of the present phase."""
    dropped: set[str] = field(default_factory=set)
    """Clients that the open round goes on without."""
    quarantined: set[str] = field(default_factory=set)
    retired: set[str] = field(default_factory=set)
    phase_began_at: datetime | None = None
    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    """Lines of metrics.jsonl of the rounds that have committed."""
    last_round_s: float | None = None
    """Duration of the round that committed last; None if its beginning is unknown."""
    roster: frozenset[str] = frozenset()
    clients: Sequence[Client] = ()
    """Clients of the run that have ever joined, by id."""
    _round_began_at: datetime | None = None

    @classmethod
    def of(cls, run: Run, rounds: Sequence[Round] = ()) -> RunHistory:
        """The state in a run's document and in the documents of its last rounds."""
        dropped = {client.client_id for each in rounds if each.round == run.round for client in each.dropped}
        return cls(
            run_id=run.run_id,
            method=run.method,
            config=run.config,
            total_rounds=run.total_rounds,
            status=run.status,
            round=run.round,
            phase=run.phase.value if run.phase is not None else "",
            cohort=frozenset(run.cohort),
            done=set(run.done_clients),
            dropped=dropped,
            quarantined={client.client_id for client in run.quarantined},
            retired={client.client_id for client in run.retired},
            roster=frozenset(run.roster),
        )

    # Inputs

    def take(self, event: Event) -> str | None:
        """Take the next event; returns a sentence about it, if a person should read one."""
        name, client = event.type, event.client_id or ""
        if name in STATUS_AFTER:
            self.status = STATUS_AFTER[name]
        if name == "run_extended":
            self.total_rounds = int(event.data["rounds"])
        if name == "round_opened":
            self._opened(event)
        elif name in ("update_committed", "evaluation_reported"):
            self.done.add(client)
        elif name == "round_committed":
            self._committed(event)
        elif name.startswith("round_"):
            self._begin(name.removeprefix("round_"), event.time)
            self.cohort |= frozenset(event.data.get("evaluators", ()))
        elif name == "client_without_data":
            self.cohort = self.cohort - {client} | frozenset(event.data["drawn"])
        elif name == "client_dropped":
            self.dropped.add(client)
        elif name == "client_returned":
            self.dropped.discard(client)
        elif name == "client_asked":
            self.cohort |= {client}
        elif name == "client_quarantined":
            self.quarantined.add(client)
        elif name == "client_released":
            self.quarantined.discard(client)
        elif name == "client_retired":
            self.retired.add(client)
        elif name == "client_admitted":
            self.retired.discard(client)
            self.roster |= {client}
        if name == "run_recovered":
            self._round_began_at = None  # by the clock of another process
        if name in ("update_removed", "report_removed") and (name == "report_removed") == (self.phase == "evaluating"):
            self.done.discard(client)
        if name in ("run_started", "clients_admitted"):
            self.roster |= set(event.data.get("clients", ()))
        return sentence_of(event)

    def take_clients(self, clients: Sequence[Client]) -> None:
        """Take the list of the federation's clients; only those of this run are kept."""
        known = self.roster | self.cohort
        self.clients = [client for client in clients if client.client_id in known or client.run_id == self.run_id]

    # Derived values

    @property
    def expected(self) -> frozenset[str]:
        """Clients whose part in the open round has come or may still come."""
        return self.cohort - (self.dropped - self.done)

    @property
    def awaited(self) -> frozenset[str]:
        """Clients that an open run waits for now: to do their part of the phase, or to join."""
        if self.status is RunStatus.RUNNING and self.phase in PHASES_OF_CLIENTS:
            awaited = self.cohort - self.done - self.dropped
        elif self.status is RunStatus.PENDING:
            awaited = self.roster - {client.client_id for client in self.clients if client.is_connected}
        else:
            awaited = frozenset()
        return awaited - self.quarantined - self.retired

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """The warnings about the run, from the rounds that are known here."""
        means = [(line["round"], line["accuracy"]["mean"]) for line in self.evaluated[-ROUNDS:]]
        known = [(number, mean) for number, mean in means if mean is not None]
        classes = self.config.get("data", {}).get("classes", ())
        unfound = unfound_warning(self.evaluated[-1], classes, self.total_rounds) if self.evaluated else None
        return (*warnings_of(known, self.config, self.method), *filter(None, (unfound,)))

    @property
    def evaluated(self) -> list[Mapping[str, Any]]:
        """Lines of metrics.jsonl of the rounds that were evaluated; of the others there is no accuracy."""
        return [line for line in self.rounds if line["accuracy"] is not None]

    # Reduction

    def _opened(self, event: Event) -> None:
        self.round = event.round if event.round is not None else -1
        self.cohort, self.dropped = frozenset(event.data["cohort"]), set()
        self._round_began_at = event.time
        self._begin(event.data["phase"], event.time)

    def _committed(self, event: Event) -> None:
        self._begin("committed", event.time)
        metrics = event.data.get("metrics")
        if metrics is None:
            return
        self.rounds.append(metrics)
        self.last_round_s = None
        if self._round_began_at is not None:
            self.last_round_s = (event.time - self._round_began_at).total_seconds()

    def _begin(self, phase: str, time: datetime) -> None:
        self.phase, self.phase_began_at = phase, time
        self.done = set()
