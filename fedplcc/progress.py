"""Showing a run while it goes on: a line per round, and on a terminal a bar below them with what happens now.

It reads the events of the run's history, so a demo, a simulation and a run that is watched from afar look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from fedplcc.plots import domains_of
from gateway.schemas import Event, Run

NOTES = {
    "run_recovered": "the aggregator came back; the run goes on",
    "run_paused": "the run is paused",
    "run_resumed": "the run goes on",
    "pause_requested": "the run pauses when the open round has committed",
    "pause_withdrawn": "the run does not pause",
    "run_stopping": "the run is being stopped",
    "environments_differ": "the clients compute on different machine types: the same run elsewhere may give other last bits",
}
"""Events of a run that a person wants to know of, beside rounds and problems."""
PHASES = {
    "initialising": "making the first model",
    "collecting": "training",
    "aggregating": "aggregating",
    "evaluating": "evaluating",
}


def console_for(*, json: bool) -> Console:
    """Where progress goes: stdout, or stderr where stdout is for a program."""
    return Console(stderr=json, highlight=False, markup=False, emoji=False, soft_wrap=True)


class RoundTable:
    """Lines of text, one per round, under a heading that names the domains. Pure."""

    def __init__(self, domains: Sequence[str]) -> None:
        self.domains = tuple(domains)
        self._names = (*self.domains, "mean", "worst")
        self._widths = {name: max(len(name), 6) for name in self._names}

    def heading(self) -> str:
        """The names of the columns."""
        names = "  ".join(name.rjust(self._widths[name]) for name in self._names)
        return f"{'round':>6}  {names}  {'loss':>7}  {'prototypes':>13}  {'time':>7}"

    def line(self, metrics: Mapping[str, Any], seconds: float | None = None) -> str:
        """A round's accuracies in percent, its cross-entropy, its local and global prototypes, and how long it took."""
        accuracy, loss, prototypes = metrics["accuracy"], metrics["loss"].get("ce"), metrics["prototypes"]
        values = "  ".join(_percent(accuracy.get(name)).rjust(self._widths[name]) for name in self._names)
        counts = f"{prototypes['local']} -> {prototypes['global']}"
        return f"{metrics['round']:>6}  {values}  {_number(loss, 3):>7}  {counts:>13}  {_number(seconds, 1, ' s'):>7}"


class RunProgress(AbstractContextManager["RunProgress"]):
    """Shows the events of one run as they come."""

    def __init__(self, console: Console, *, total_rounds: int) -> None:
        self._console, self._total_rounds = console, total_rounds
        self._table: RoundTable | None = None
        self._opened_at: datetime | None = None
        self._cohort: Sequence[str] = ()
        self._num_done = 0
        self._phase = ""
        self._bar: Progress | None = None
        self._bar_task = TaskID(0)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar_task = self._bar.add_task("waiting for clients", total=self._total_rounds)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Say something in a line of its own."""
        self._console.print(text)

    def now(self, text: str) -> None:
        """Say what happens at this moment; only the bar shows it."""
        if self._bar is not None:
            self._bar.update(self._bar_task, description=text)

    def event(self, event: Event) -> None:
        """Take one event of the run's history; they come in order."""
        if event.type == "round_opened":
            self._opened_at, self._cohort = event.time, event.data["cohort"]
            self._begin(event.round, event.data["phase"])
        elif event.type in ("update_committed", "evaluation_reported"):
            self._num_done += 1
            self._show(event.round)
        elif event.type == "round_committed":
            self._committed(event)
        elif event.type.startswith("round_"):
            self._begin(event.round, event.type.removeprefix("round_"))
        elif event.type == "update_refused":
            self.note(f"client {event.client_id}: an update was refused: {event.data.get('detail')}")
        elif event.type == "client_problem":
            sentence = "; ".join(filter(None, (event.data.get("detail"), event.data.get("hint"))))
            self.note(f"client {event.client_id}: {sentence}")
        elif event.type == "environment_changed":
            self.note(
                f"client {event.client_id} computes on another machine type now; last bits may differ from here on"
            )
        elif event.type in NOTES:
            self.note(NOTES[event.type])

    def _committed(self, event: Event) -> None:
        metrics = event.data.get("metrics")
        if metrics is None:
            return
        domains = domains_of([metrics])
        if self._table is None or self._table.domains != tuple(domains):
            self._table = RoundTable(domains)
            self.note(self._table.heading())
        seconds = None if self._opened_at is None else (event.time - self._opened_at).total_seconds()
        self.note(self._table.line(metrics, seconds))
        if self._bar is not None:
            self._bar.update(self._bar_task, completed=event.round)

    def _begin(self, number: int | None, phase: str) -> None:
        self._phase, self._num_done = phase, 0
        self._show(number)

    def _show(self, number: int | None) -> None:
        text = f"round {number}: {PHASES.get(self._phase, self._phase)}"
        if self._phase in ("collecting", "evaluating"):
            text += f", {self._num_done} of {len(self._cohort)} clients done"
        self.now(text)


@contextmanager
def shown_transfers(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Within the block, show transfers on a terminal: call what is given with a file's name, new bytes and its size."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:

        def on_bytes(name: str, count: int, total: int) -> None:
            if name not in bars:
                bars[name] = shown.add_task(name, total=total)
            shown.advance(bars[name], count)

        yield on_bytes


def run_lines(runs: Sequence[Run]) -> list[str]:
    """Runs for people: a heading and a line each."""
    rows = [("run", "method", "status", "round", "created", "reason")]
    for run in runs:
        created = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        round_text = f"{max(run.round, 0)}/{run.total_rounds}"
        rows.append((run.run_id, run.method, run.status.value, round_text, created, run.reason))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"
