"""Progress of a run and of transfers: lines of text, and on a terminal a bar below them.

It reads the events of a run's history, so a demo, a simulation and a run watched from afar look alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Column

from fedplcc.shared.chance import RunWarningKind
from fedplcc.shared.documents import Event
from fedplcc.shared.types import RoundPhase
from fedplcc.terminal.event_sentences import PHASES
from fedplcc.terminal.printable import printable
from fedplcc.terminal.round_table import RoundTable
from fedplcc.terminal.run_history import RunHistory


def console_for(*, json: bool, outlasts_reader: bool = False) -> Console:
    """The console for progress: stdout, or stderr where stdout is for a program.

    Args:
        outlasts_reader: Whether the work goes on in silence where nobody reads any more, as `head -n 1`, instead of ending.
    """
    kind = _LastingConsole if outlasts_reader else _PlainConsole
    return kind(stderr=json, highlight=False, markup=False, emoji=False, soft_wrap=True)


class _PlainConsole(Console):
    """A console whose texts give a terminal no commands, whoever wrote them."""

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """The parts of what is shown, a bar's too, with what `printable` escapes in each line of a text."""
        for part in super().render(*arguments, **options):
            lines = "\n".join(map(printable, part.text.split("\n")))
            yield part if part.control else part._replace(text=lines)


class _LastingConsole(_PlainConsole):
    """A console of work whose results count, whoever reads what it says."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; what the process prints beside goes nowhere either."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), self.file.fileno())


def shows_bars(console: Console) -> bool:
    """Whether a bar can move there; a file, a pipe and a dumb terminal get lines instead."""
    return console.is_terminal and not console.is_dumb_terminal


class RunProgress(AbstractContextManager["RunProgress"]):
    """Prints the events of one run as they come."""

    def __init__(
        self, console: Console, *, total_rounds: int, config: Mapping[str, Any] | None = None, method: str = ""
    ) -> None:
        """Prepare to print.

        Args:
            total_rounds: Rounds of the run after round 0.
            config: The run's configuration with its defaults; without it no warning is printed.
            method: The run's method, for what mends the trouble that a warning is about.
        """
        self.run = RunHistory(total_rounds=total_rounds, config=config or {}, method=method)
        """The run as its events so far show it."""
        self._warned: set[RunWarningKind] = set()
        self.num_lines = 0
        """Lines that were printed so far."""
        self._console = console
        self._table: RoundTable | None = None
        self._bar: Progress | None = None
        self._bar_task = TaskID(0)

    def __enter__(self) -> Self:
        if shows_bars(self._console):
            self._bar = _bar(self._console, MofNCompleteColumn(), TimeElapsedColumn())
            self._bar_task = self._bar.add_task("waiting for clients", total=self.run.total_rounds)
            self._bar.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text)
        self.num_lines += 1

    def problem(self, text: str) -> None:
        """Print what is wrong at a client's site."""
        self.note(text)

    @property
    def has_bar(self) -> bool:
        """Whether a bar shows the present activity."""
        return self._bar is not None

    def now(self, text: str) -> None:
        """Show the present activity on the bar; without a bar nothing is printed."""
        if self._bar is not None:
            self._bar.update(self._bar_task, description=text)

    def step(self, text: str) -> None:
        """Announce work that may take a while: on the bar, or in a line where there is none."""
        if self._bar is None:
            self.note(text)
        else:
            self.now(text)

    def event(self, event: Event) -> None:
        """Take one event of the run's history; they come in order."""
        note = self.run.take(event)
        if note is not None:
            self.note(note)
        elif event.type == "round_committed":
            self._print_round(event)
        elif event.type.startswith("round_") or event.type in ("update_committed", "evaluation_reported"):
            self._show_phase()

    def _print_round(self, event: Event) -> None:
        metrics = event.data.get("metrics")
        if metrics is None:
            return
        width = self._console.width if self._bar is not None else None
        table = RoundTable.of(metrics, width, config=self.run.config)
        if self._table is None or (metrics["accuracy"] is not None and not self._table.has_columns_of(table)):
            notes, self._table = table.notes_after(self._table), table
            for text in (*notes, table.heading()):
                self.note(text)
        self.note(self._table.line(metrics, self.run.last_round_s))
        warnings = self.run.warnings
        for warning in warnings:
            if warning.kind not in self._warned:
                self.note(f"warning: {warning.sentence}")
        self._warned = {warning.kind for warning in warnings}
        if self._bar is not None:
            self._bar.update(self._bar_task, completed=event.round)

    def _show_phase(self) -> None:
        run = self.run
        text = f"round {run.round}: {PHASES.get(run.phase, run.phase)}"
        if run.phase in (RoundPhase.COLLECTING, RoundPhase.EVALUATING):
            text += f", {len(run.done & run.expected)} of {len(run.expected)} clients done"
        self.now(text)


@contextmanager
def shown_transfers(console: Console, doing: str = "fetching") -> Iterator[Callable[[str, int, int], None]]:
    """Show transfers within the block; yields a function that takes a file's name, the new bytes and the file's size.

    A terminal gets a bar for each file; elsewhere a line is printed when the file begins.
    """
    bars: dict[str, TaskID] = {}
    with _bar(console, DownloadColumn(), TransferSpeedColumn(), disable=not shows_bars(console)) as shown:

        def on_bytes(name: str, count: int, total: int) -> None:
            if name not in bars:
                bars[name] = shown.add_task(name, total=total)
                if not shows_bars(console):
                    console.print(f"{doing} {name}, {decimal(total)}")
            shown.advance(bars[name], count)

        yield on_bytes


@contextmanager
def shown_steps(console: Console, count: int) -> Iterator[Callable[[str], None]]:
    """Show `count` steps of work within the block; yields a function to call when a step begins.

    A terminal gets one bar; elsewhere each step is a line.
    """
    with _bar(console, MofNCompleteColumn(), TimeElapsedColumn(), disable=not shows_bars(console)) as shown:
        bar, num_started = shown.add_task("", total=count), 0

        def step(text: str) -> None:
            nonlocal num_started
            shown.update(bar, description=text, completed=num_started)
            num_started += 1
            if not shows_bars(console):
                console.print(text)

        yield step


def _bar(console: Console, *columns: ProgressColumn, disable: bool = False) -> Progress:
    """A bar with a description, as wide as the terminal, that vanishes at the end."""
    description = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True, overflow="ellipsis")
    )
    # On a narrow terminal the words and the numbers say more than a bar of three characters.
    bar = (BarColumn(bar_width=None, table_column=Column(ratio=1)),) if console.width >= 60 else ()
    return Progress(description, *bar, *columns, console=console, transient=True, expand=True, disable=disable)
