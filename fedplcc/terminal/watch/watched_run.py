"""What is known of a run that is being watched: made of its document, its events in order, and the list of clients.

It decides nothing about how it looks and asks nobody anything; times come with the events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import mean
from typing import Any

from fedplcc.runs.plots import SUMMARIES
from fedplcc.terminal.event_notes import PHASES_OF_CLIENTS, TROUBLE, note_of
from shared.documents import Client, Event, Run
from shared.types import ClientActivity

MAX_NOTES = 200
"""Notes that are kept; a screen shows fewer."""
PACE_ROUNDS = 5
"""Of so many last rounds the time that is left is reckoned."""

STATUS_AFTER = {
    "run_created": "pending",
    "run_started": "running",
    "run_paused": "paused",
    "run_resumed": "running",
    "run_stopping": "stopping",
    "run_stopped": "stopped",
    "run_completed": "completed",
    "run_failed": "failed",
}
WORKING = {
    "initialising": frozenset((ClientActivity.INITIALISING,)),
    "collecting": frozenset((ClientActivity.TRAINING,)),
    "evaluating": frozenset((ClientActivity.EVALUATING,)),
}
"""What a client does in a phase while its progress is that of the phase."""
NEARLY_DONE = frozenset((ClientActivity.SUMMARISING, ClientActivity.UPLOADING))
"""What comes after it, before its part counts as done."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person wants to know."""

    time: datetime
    text: str
    is_trouble: bool


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity over the rounds that have committed; None where there was no value."""

    name: str
    values: Sequence[float | None]

    @property
    def last(self) -> float | None:
        """The value of the last round."""
        return self.values[-1] if self.values else None

    @property
    def change(self) -> float | None:
        """By how much the last round's value differs from the one before it that there was."""
        before = next((value for value in reversed(self.values[:-1]) if value is not None), None)
        return None if self.last is None or before is None else self.last - before

    @property
    def best(self) -> float | None:
        """The highest value."""
        return max((value for value in self.values if value is not None), default=None)


@dataclass(slots=True)
class WatchedRun:
    """A run as far as it is known."""

    run_id: str
    method: str
    total_rounds: int
    status: str
    reason: str = ""
    round: int = -1
    """The latest round that opened; -1 before round 0."""
    phase: str = ""
    cohort: frozenset[str] = frozenset()
    done: set[str] = field(default_factory=set)
    """Clients whose part in the present phase is done."""
    dropped: set[str] = field(default_factory=set)
    """Clients that the open round goes on without."""
    quarantined: set[str] = field(default_factory=set)
    is_pause_requested: bool = False
    phase_began_at: datetime | None = None
    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    """Lines of metrics.jsonl of the rounds that have committed."""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=PACE_ROUNDS))
    """How long the last rounds took."""
    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=MAX_NOTES))
    roster: frozenset[str] = frozenset()
    clients: Sequence[Client] = ()
    """Clients of the run that have ever joined, by id."""
    has_clients: bool = False
    """Whether the list of clients has come at all."""
    clients_trouble: str = ""
    """Why the list of clients is not up to date; empty if it is."""
    connection_trouble: str = ""
    """Why no events come; empty while they may."""
    _round_began_at: datetime | None = None

    @classmethod
    def of(cls, run: Run) -> WatchedRun:
        """What a run's document says of it."""
        return cls(
            run_id=run.run_id,
            method=run.method,
            total_rounds=run.total_rounds,
            status=run.status.value,
            reason=run.reason,
            round=run.round,
            phase=run.phase.value if run.phase is not None else "",
            cohort=frozenset(run.cohort),
            done=set(run.done_clients),
            quarantined={client.client_id for client in run.quarantined},
            is_pause_requested=run.is_pause_requested,
            roster=frozenset(run.roster),
        )

    # What comes in

    def take(self, event: Event) -> None:
        """Take the next event of the run's history."""
        name, client = event.type, event.client_id or ""
        if name in STATUS_AFTER:
            self.status, self.reason = STATUS_AFTER[name], str(event.data.get("reason", ""))
        if name == "round_opened":
            self._opened(event)
        elif name in ("update_committed", "evaluation_reported"):
            self.done.add(client)
        elif name == "round_committed":
            self._committed(event)
        elif name.startswith("round_"):
            self._begin(name.removeprefix("round_"), event.time)
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
        elif name in ("pause_requested", "pause_withdrawn"):
            self.is_pause_requested = name == "pause_requested"
        elif name == "quorum_missing":
            self.reason = str(event.data.get("reason", ""))
        elif name == "quorum_regained":
            self.reason = ""
        if name == "run_paused":
            self.is_pause_requested = False
        if name in ("run_started", "clients_admitted"):
            self.roster |= set(event.data.get("clients", ()))
        text = note_of(event)
        if text is not None:
            self.notes.append(Note(event.time, text, name in TROUBLE))

    def take_clients(self, clients: Sequence[Client]) -> None:
        """Take the list of all clients of the federation; those of this run are kept."""
        known = self.roster | self.cohort
        self.clients = [client for client in clients if client.client_id in known or client.run_id == self.run_id]
        self.has_clients, self.clients_trouble = True, ""

    # What it amounts to

    @property
    def num_committed(self) -> int:
        """Rounds after round 0 that have committed."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    @property
    def expected(self) -> frozenset[str]:
        """Clients that the open round waits for or has heard of."""
        return self.cohort - (self.dropped - self.done)

    @property
    def phase_fraction(self) -> float | None:
        """How much of the present phase is done, 0 to 1, by what its clients say; None where only the aggregator knows."""
        if self.phase not in PHASES_OF_CLIENTS or not self.expected:
            return None
        known = {client.client_id: client for client in self.clients}
        return mean(
            1.0 if name in self.done else self._part_of(known[name]) if name in known else 0.0 for name in self.expected
        )

    @property
    def left_s(self) -> float | None:
        """Seconds that the run needs for the rounds that are left, at the pace of the last ones; None if unknown."""
        if not self.seconds or self.status != "running":
            return None
        return mean(self.seconds) * (self.total_rounds - self.num_committed)

    @property
    def accuracies(self) -> list[Series]:
        """Accuracy of each domain over the rounds, sorted by name; fractions from 0 to 1."""
        names = sorted({name for line in self.rounds for name in line["accuracy"]} - set(SUMMARIES))
        return [self._series("accuracy", name) for name in names]

    @property
    def summaries(self) -> list[Series]:
        """Mean and worst accuracy over the rounds, and the mean of clients' own models where they have some beside it."""
        if not self.rounds:
            return []
        summaries = [self._series("accuracy", name) for name in SUMMARIES]
        if not self.are_own_models and any(line.get("accuracy_local") for line in self.rounds):
            values = [(line.get("accuracy_local") or {}).get("mean") for line in self.rounds]
            summaries.append(Series("local mean", values))
        return summaries

    @property
    def worst_domain(self) -> str | None:
        """The domain of the lowest accuracy in the last round; None where all are alike."""
        known = {series.name: series.last for series in self.accuracies if series.last is not None}
        return min(known, key=lambda name: known[name]) if len(set(known.values())) > 1 else None

    @property
    def losses(self) -> list[Series]:
        """Each term of the training loss over the rounds, in the order of the last round."""
        names = list(self.rounds[-1]["loss"]) if self.rounds else []
        return [self._series("loss", name) for name in names]

    @property
    def are_own_models(self) -> bool:
        """Whether the accuracies are of the clients' own models, because the run shares none."""
        return bool(self.rounds) and bool(self.rounds[-1].get("accuracy_of"))

    # Parts of the above

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
        if self._round_began_at is not None:
            self.seconds.append((event.time - self._round_began_at).total_seconds())

    def _begin(self, phase: str, time: datetime) -> None:
        self.phase, self.phase_began_at = phase, time
        self.done = set()

    def _part_of(self, client: Client) -> float:
        """How much of its part in the present phase a client has done that is not done with it."""
        if not client.is_connected or (client.run_id, client.round) != (self.run_id, self.round):
            return 0.0
        if client.activity in WORKING[self.phase]:
            return min(max(client.progress, 0.0), 1.0)
        return 1.0 if client.activity in NEARLY_DONE else 0.0

    def _series(self, key: str, name: str) -> Series:
        return Series(name, [line[key].get(name) for line in self.rounds])
