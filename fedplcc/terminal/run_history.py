"""The state of a run, reduced from its document, its events in order and the list of clients. Pure.

Every view of a run on a terminal reads this one record; times come with the events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import mean
from typing import Any

from fedplcc.runs.plots import SUMMARIES, domains_of
from fedplcc.terminal.event_sentences import TROUBLE, sentence_of
from fedplcc.terminal.stage_lines import place_names
from shared.chance import ROUNDS, RunWarning, warnings_of
from shared.documents import Client, Event, Round, Run
from shared.scores import unfound_warning
from shared.types import ClientActivity, RoundPhase, RunStatus

PHASES_OF_CLIENTS = frozenset((RoundPhase.INITIALISING, RoundPhase.COLLECTING, RoundPhase.EVALUATING))
"""Phases in which a round waits for clients; in the others the aggregator works."""
MAX_NOTES = 200
"""Notes that are kept; a screen shows fewer."""
LAST_ROUNDS = 5
"""Number of last rounds whose mean duration gives the time that is left."""

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
WORKING = {
    "initialising": frozenset((ClientActivity.INITIALISING,)),
    "collecting": frozenset((ClientActivity.TRAINING,)),
    "evaluating": frozenset((ClientActivity.EVALUATING,)),
}
"""The activity that belongs to a phase: only during it does a client's progress count for the phase."""
NEARLY_DONE = frozenset((ClientActivity.SUMMARISING, ClientActivity.UPLOADING))
"""Activities after that one: the client's share counts as whole."""


@dataclass(frozen=True, slots=True)
class Note:
    """One event as a sentence."""

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
        """The last round's value minus the latest value before it."""
        before = next((value for value in reversed(self.values[:-1]) if value is not None), None)
        return None if self.last is None or before is None else self.last - before

    @property
    def best(self) -> float | None:
        """The highest value."""
        return max((value for value in self.values if value is not None), default=None)


@dataclass(slots=True)
class RunHistory:
    """A run as its events, its document and its clients show it."""

    run_id: str = ""
    method: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's configuration; without it no warning is found."""
    total_rounds: int = 0
    status: RunStatus = RunStatus.PENDING
    reason: str = ""
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
    is_pause_requested: bool = False
    phase_began_at: datetime | None = None
    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    """Lines of metrics.jsonl of the rounds that have committed."""
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LAST_ROUNDS))
    """Durations of the last rounds."""
    last_round_s: float | None = None
    """Duration of the round that committed last; None if its beginning is unknown."""
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
    def of(cls, run: Run, rounds: Sequence[Round] = ()) -> RunHistory:
        """The state in a run's document and in the documents of its last rounds."""
        dropped = {client.client_id for each in rounds if each.round == run.round for client in each.dropped}
        return cls(
            run_id=run.run_id,
            method=run.method,
            config=run.config,
            total_rounds=run.total_rounds,
            status=run.status,
            reason=run.reason,
            round=run.round,
            phase=run.phase.value if run.phase is not None else "",
            cohort=frozenset(run.cohort),
            done=set(run.done_clients),
            dropped=dropped,
            quarantined={client.client_id for client in run.quarantined},
            retired={client.client_id for client in run.retired},
            is_pause_requested=run.is_pause_requested,
            roster=frozenset(run.roster),
        )

    # Inputs

    def take(self, event: Event) -> Note | None:
        """Take the next event; returns its note, if a person should read one."""
        name, client = event.type, event.client_id or ""
        if name in STATUS_AFTER:
            self.status, self.reason = STATUS_AFTER[name], str(event.data.get("reason", ""))
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
        elif name in ("pause_requested", "pause_withdrawn"):
            self.is_pause_requested = name == "pause_requested"
        elif name == "quorum_missing":
            self.reason = str(event.data.get("reason", ""))
        elif name == "quorum_regained":
            self.reason = ""
        if name in ("run_paused", "run_parked"):
            self.is_pause_requested = False
        if name == "run_recovered":
            self._round_began_at = None  # by the clock of another process
        if name in ("update_removed", "report_removed") and (name == "report_removed") == (self.phase == "evaluating"):
            self.done.discard(client)
        if name in ("run_started", "clients_admitted"):
            self.roster |= set(event.data.get("clients", ()))
        text = sentence_of(event)
        if text is None:
            return None
        note = Note(event.time, text, name in TROUBLE)
        self.notes.append(note)
        return note

    def take_clients(self, clients: Sequence[Client]) -> None:
        """Take the list of the federation's clients; only those of this run are kept."""
        known = self.roster | self.cohort
        self.clients = [client for client in clients if client.client_id in known or client.run_id == self.run_id]
        self.has_clients, self.clients_trouble = True, ""

    # Derived values

    @property
    def num_committed(self) -> int:
        """Rounds after round 0 that have committed."""
        return int(self.rounds[-1]["round"]) if self.rounds else 0

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
    def phase_fraction(self) -> float | None:
        """Share of the present phase that its clients report as done, 0 to 1; None where the aggregator works."""
        if self.phase not in PHASES_OF_CLIENTS or not self.expected:
            return None
        known = {client.client_id: client for client in self.clients}
        return mean(
            1.0 if name in self.done else self._part_of(known[name]) if name in known else 0.0 for name in self.expected
        )

    @property
    def left_s(self) -> float | None:
        """Estimated seconds for the remaining rounds, from the last ones' durations; None if unknown."""
        if not self.seconds or self.status is not RunStatus.RUNNING:
            return None
        return mean(self.seconds) * (self.total_rounds - self.num_committed)

    @property
    def accuracies(self) -> list[Series]:
        """Accuracy of each domain over the evaluated rounds, sorted by name; fractions from 0 to 1."""
        return [self._accuracy(name) for name in domains_of(self.rounds)]

    @property
    def summaries(self) -> list[Series]:
        """Mean and worst accuracy over the evaluated rounds; also the mean of the clients' own models, if there are any."""
        if not self.rounds:
            return []
        summaries = [self._accuracy(name) for name in SUMMARIES]
        if not self.are_own_models and any(line.get("accuracy_local") for line in self.rounds):
            summaries.append(replace(self._accuracy("mean", "accuracy_local"), name="local mean"))
        return summaries

    @property
    def worst_domain(self) -> str | None:
        """The domain with the lowest accuracy in the last evaluated round; None where all are equal."""
        known = {series.name: series.last for series in self.accuracies if series.last is not None}
        return min(known, key=lambda name: known[name]) if len(set(known.values())) > 1 else None

    @property
    def losses(self) -> list[Series]:
        """Each term of the training loss over the rounds, in the order of the last round."""
        names = list(self.rounds[-1]["loss"]) if self.rounds else []
        return [Series(name, [line["loss"].get(name) for line in self.rounds]) for name in names]

    @property
    def are_own_models(self) -> bool:
        """Whether the accuracies are of the clients' own models, because the run shares none, or none whole."""
        return bool(self.rounds) and bool(self.rounds[-1].get("accuracy_of"))

    @property
    def place(self) -> str:
        """Stage of the last committed round, and its pass where there are several; empty in a run without stages."""
        last = self.rounds[-1] if self.rounds else {}
        return ", ".join(f"{name} {last[name]}" for name in place_names(last, self.config))

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
            self.seconds.append(self.last_round_s)

    def _begin(self, phase: str, time: datetime) -> None:
        self.phase, self.phase_began_at = phase, time
        self.done = set()

    def _part_of(self, client: Client) -> float:
        """Share of the present phase that an unfinished client has done, 0 to 1."""
        if not client.is_connected or (client.run_id, client.round) != (self.run_id, self.round):
            return 0.0
        if client.activity in WORKING[self.phase]:
            return min(max(client.progress, 0.0), 1.0)
        return 1.0 if client.activity in NEARLY_DONE else 0.0

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

    def _accuracy(self, name: str, key: str = "accuracy") -> Series:
        return Series(name, [(line.get(key) or {}).get(name) for line in self.evaluated])
