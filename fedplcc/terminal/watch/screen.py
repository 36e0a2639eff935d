"""The screen of a watched run: rich's layout of a head, sections by importance, and a foot. Pure.

The head says where the run is; then come accuracies, losses, clients and notes. A screen without room for all of them leaves
out the last ones. Text of others reaches the terminal escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.layout import Layout
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplcc.terminal.event_sentences import PHASES
from fedplcc.terminal.numbers import about, for_so_long
from fedplcc.terminal.printable import printable
from fedplcc.terminal.run_history import PHASES_OF_CLIENTS, RunHistory
from fedplcc.terminal.watch.sections import (
    FAINT,
    HEADING,
    LABEL_WIDTH,
    MIDDLE,
    TROUBLE,
    WORKS,
    WORST,
    Accuracies,
    Clients,
    Notes,
    Results,
    Section,
    bar,
    wrapped,
)
from shared.types import RunStatus

STATUS = {
    RunStatus.RUNNING: "green",
    RunStatus.COMPLETED: "green",
    RunStatus.FAILED: "bold red",
    RunStatus.STOPPED: "yellow",
    RunStatus.STOPPING: "yellow",
    RunStatus.PAUSED: "yellow",
    RunStatus.PENDING: "cyan",
}
"""Colours of a run's states."""
REASON_LINES = 2
WARNING_LINES = 3
BLANK = Text(" ")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScreen:
    """A run on a screen, to be printed with rich."""

    run: RunHistory
    now: datetime
    """The present, for how long a phase has lasted."""
    where: str = ""
    """The gateway, for the last line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As many lines as the screen is high."""
        height, width = options.height or console.height, options.max_width - 2
        head = self._head(width)[: max(height - 1, 0)]
        sections: list[Section] = [
            Accuracies(self.run, width),
            Results(self.run, width),
            Clients(self.run, width),
            Notes(self.run, width),
        ]
        rest = height - len(head) - 1
        parts = [Layout(Group(*head), size=len(head))] if head else []
        given = allotted(rest, sections)
        # A blank line before each section where there is room to spare.
        spare = rest - sum(given)
        for section, lines in zip(sections, given, strict=True):
            if lines:
                blank = spare > 0
                spare -= blank
                parts.append(Layout(Group(*[BLANK] * blank, *section.lines(lines)), size=lines + blank))
        if spare > 0:
            parts.append(Layout(BLANK, size=spare))
        parts.append(Layout(self._foot(width), size=1))
        layout = Layout()
        layout.split_column(*parts)
        yield from console.render(Padding(layout, (0, 1)), options.update(height=height))

    def _head(self, width: int) -> list[RenderableType]:
        run = self.run
        is_pausing = run.is_pause_requested and run.status is RunStatus.RUNNING
        status = "pauses after this round" if is_pausing else run.status.value
        title = Text.assemble(
            (printable(run.run_id), HEADING), "  ", (status, STATUS[run.status]), "  ", printable(run.method)
        )
        title.no_wrap, title.overflow = True, "ellipsis"
        reason = wrapped(run.reason, width, REASON_LINES, TROUBLE) if run.reason else []
        for warning in run.warnings:
            reason += wrapped(warning.sentence, width, WARNING_LINES, TROUBLE)
        done = f"{run.num_committed} of {run.total_rounds}"
        if run.left_s is not None and run.num_committed < run.total_rounds:
            done += f", {about(run.left_s)} left"
        if run.place:
            done += f", {run.place}"
        rounds = _labelled("rounds", done, width, fraction=run.num_committed / max(run.total_rounds, 1))
        return [title, *reason, rounds, self._phase(width)]

    def _phase(self, width: int) -> RenderableType:
        run = self.run
        if run.status is RunStatus.PENDING:
            here = sum(client.is_connected for client in run.clients)
            whom = f"{here} of {len(run.roster)} clients are here" if run.roster else f"{here} clients are here"
            return _labelled("waiting", whom if run.has_clients else "for clients", width)
        if run.status is RunStatus.PAUSED:
            how = f"go on with: fedplcc run resume {printable(run.run_id)}"
            return _labelled("paused", how, width, style=STATUS[RunStatus.PAUSED])
        if run.status not in (RunStatus.RUNNING, RunStatus.STOPPING) or run.round < 0:
            return BLANK
        label = PHASES.get(run.phase, run.phase)
        since = "" if run.phase_began_at is None else for_so_long((self.now - run.phase_began_at).total_seconds())
        if run.phase not in PHASES_OF_CLIENTS:
            return _labelled(label, f"round {run.round}{since}", width)
        expected = len(run.expected)
        done = f"{len(run.done & run.expected)} of {expected} client{'' if expected == 1 else 's'} done"
        return _labelled(label, done + since, width, fraction=run.phase_fraction or 0.0)

    def _foot(self, width: int) -> RenderableType:
        how = "Ctrl-C ends watching, not the run" if width >= MIDDLE else "Ctrl-C ends watching"
        trouble = self.run.connection_trouble or self.run.clients_trouble
        if trouble:
            return Text(printable(trouble), WORST, no_wrap=True, overflow="ellipsis")
        there = f"connected to {self.where}"
        if not self.where or len(how) + len(there) + 2 > width:
            return Text(how, FAINT, no_wrap=True)
        foot = Table.grid(expand=True)
        foot.add_column()
        foot.add_column(justify="right")
        foot.add_row(Text(how, FAINT), Text(there, FAINT))
        return foot


def allotted(height: int, sections: Sequence[Section]) -> list[int]:
    """Lines for each section; the first sections are the most important ones.

    Each section that fits gets its least number of lines, the first ones first. The rest goes to the first section that
    could fill more, then to the next. A section that does not fit gets none.
    """
    given: list[int] = []
    rest = max(height, 0)
    for section in sections:
        given.append(section.least if section.least <= rest else 0)
        rest -= given[-1]
    for index, section in enumerate(sections):
        if given[index]:
            more = min(section.most - given[index], rest)
            given[index] += more
            rest -= more
    return given


def _labelled(
    label: str, text: str, width: int, *, fraction: float | None = None, style: str = WORKS
) -> RenderableType:
    """A label, a bar where there is room, and numbers."""
    row = Table.grid(padding=(0, 2, 0, 0), expand=fraction is not None)
    row.add_column(width=LABEL_WIDTH - 2, no_wrap=True)
    cells: list[str | Text | ProgressBar] = [Text(label, style)]
    if fraction is not None and width >= MIDDLE:
        row.add_column(ratio=1)
        cells.append(bar(fraction))
    row.add_column(no_wrap=True, min_width=26 if fraction is not None else None)
    row.add_row(*cells, Text(text))
    return row
