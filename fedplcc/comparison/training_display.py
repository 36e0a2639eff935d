"""How the training of cells is shown: by a worker to the process that started it, and by that to a person."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedplcc.comparison.plan import Cell
from fedplcc.terminal.printable import printable
from fedplcc.terminal.progress import RunProgress, shows_bars
from shared.documents import Event


class CellProgress(RunProgress):
    """A worker's view of one run: rounds and what a person should know go to whoever started it."""

    def __init__(self, *, told_round: Callable[[int, float | None], None], told_note: Callable[[str], None]) -> None:
        """Pass the number and mean accuracy of committed rounds to `told_round`, and notes to `told_note`."""
        super().__init__(Console(file=io.StringIO()), total_rounds=0)
        self._told_round, self._told_note = told_round, told_note

    def note(self, text: str) -> None:
        """Pass it on."""
        self._told_note(text)

    def step(self, text: str) -> None:
        """Nothing: of what takes a while within a cell a person sees the rounds."""

    def event(self, event: Event) -> None:
        """Pass a committed round on, and of the rest what a person should know."""
        if event.type != "round_committed":
            super().event(event)
        elif event.round is not None and event.data.get("metrics"):
            self._told_round(event.round, event.data["metrics"]["accuracy"]["mean"])


class CellsShown(AbstractContextManager["CellsShown"]):
    """Shows a person how cells get on: a line for each that begins or ends, on a terminal a bar for each at work."""

    def __init__(self, console: Console, *, total: int) -> None:
        """Show `total` cells on a console."""
        self._console, self._total = console, total
        self.begun: set[str] = set()
        """Names of the cells that a worker has taken."""
        self._last: dict[str, float | None] = {}
        self._bars: dict[str, TaskID] = {}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._shown = Progress(*columns, console=console, transient=True, expand=True, disable=not shows_bars(console))

    def __enter__(self) -> Self:
        self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()

    def begins(self, cell: Cell) -> None:
        """See `running.Observer`."""
        self.begun.add(cell.name)
        self._console.print(f"{cell.name}: begins, {len(self.begun)} of {self._total}")
        self._bars[cell.name] = self._shown.add_task(cell.name, total=cell.federation.config.run.rounds)

    def round(self, cell: Cell, number: int, mean: float | None) -> None:
        """See `running.Observer`."""
        self._last[cell.name] = mean
        self._shown.update(self._bars[cell.name], completed=number, description=f"{cell.name}, {_percent(mean)}")

    def note(self, cell: Cell, text: str) -> None:
        """See `running.Observer`."""
        self._console.print(printable(f"{cell.name}: {text}"))

    def ends(self, cell: Cell, failure: str | None) -> None:
        """See `running.Observer`."""
        self._shown.remove_task(self._bars.pop(cell.name))
        told = f"failed: {failure}" if failure else f"trained, {_percent(self._last.get(cell.name))} in the last round"
        self._console.print(printable(f"{cell.name}: {told}"))

    def stops(self) -> None:
        """See `running.Observer`."""
        self._console.print("stopping before the next batch; Ctrl-C again stops at once")


def _percent(mean: float | None) -> str:
    return "mean accuracy -" if mean is None else f"mean accuracy {100 * mean:.1f}%"
