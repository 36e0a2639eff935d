"""The rounds of a run as its events tell them, in order: what a bar and lines show while it goes on. Pure.

Everything else about a run is in its document; times come with the events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fedplcc.shared.chance import ROUNDS, RunWarning, warnings_of
from fedplcc.shared.documents import Event
from fedplcc.shared.scoring.scores import unfound_warning
from fedplcc.terminal.event_sentences import sentence_of


@dataclass(slots=True)
class RunHistory:
    """A run's rounds, reduced from its events."""

    method: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's configuration; without it no warning is found."""
    total_rounds: int = 0
    round: int = -1
    """The latest round that opened; -1 before round 0."""
    phase: str = ""
    cohort: frozenset[str] = frozenset()
    done: set[str] = field(default_factory=set)
    """Clients that have done their part of the present phase."""
    dropped: set[str] = field(default_factory=set)
    """Clients that the open round goes on without."""
    phase_began_at: datetime | None = None
    rounds: list[Mapping[str, Any]] = field(default_factory=list)
    """Lines of metrics.jsonl of the rounds that have committed."""
    last_round_s: float | None = None
    """Duration of the round that committed last; None if its beginning is unknown."""
    _round_began_at: datetime | None = None

    def take(self, event: Event) -> str | None:
        """Take the next event; returns a sentence about it, if a person should read one."""
        name, client = event.type, event.client_id or ""
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
        if name == "run_recovered":
            self._round_began_at = None  # by the clock of another process
        if name in ("update_removed", "report_removed") and (name == "report_removed") == (self.phase == "evaluating"):
            self.done.discard(client)
        return sentence_of(event)

    @property
    def expected(self) -> frozenset[str]:
        """Clients whose part in the open round has come or may still come."""
        return self.cohort - (self.dropped - self.done)

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
