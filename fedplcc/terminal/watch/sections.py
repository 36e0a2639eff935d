"""The sections of a watched run's screen: each knows how many lines it needs and could fill. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplcc.terminal.numbers import exact, number, percent, points
from fedplcc.terminal.printable import printable
from fedplcc.terminal.run_history import PHASES_OF_CLIENTS, Note, RunHistory, Series
from fedplcc.terminal.watch.curves import Curve, curve
from shared.documents import Client
from shared.types import ClientActivity

WORKS, TROUBLE, FAINT, HEADING, WORST = "cyan", "yellow", "bright_black", "bold", "bold yellow"
"""Styles: of the sixteen colours that every terminal lets its owner choose. Nothing is said by colour alone."""
LEAST_CHANGE = 0.0005
"""Smaller changes of an accuracy are shown as zero."""
WIDE, MIDDLE = 70, 54
"""Columns from which on there is room for everything, and for more than the essentials."""
LABEL_WIDTH = 12
NUMBER_WIDTH = 6
"""Columns of a percentage or a change."""
MAX_NAME_WIDTH, MIN_NAME_WIDTH = 18, 10
"""Columns of a domain's or a client's name."""
ACTIVITY_WIDTH, BAR_WIDTH, SPEED_WIDTH = 12, 12, 7
MAX_LOSS_CURVE, MIN_LOSS_CURVE = 16, 6
PROBLEM_LINES, NOTE_LINES = 2, 2
"""Most lines of a client's problem and of a note."""
PROBLEM_INDENT = 2


class Section(Protocol):
    """A part of the screen."""

    least: int
    """Lines that it needs at least; 0 if it has nothing to show."""
    most: int
    """Lines that it could fill."""

    def lines(self, height: int) -> Sequence[RenderableType]:
        """Renderables of together at most `height` lines."""


class Accuracies:
    """A row for each domain, and for their mean and their worst."""

    def __init__(self, run: RunHistory, width: int) -> None:
        self._run, self._width = run, width
        self._domains, self._summaries = run.accuracies, run.summaries
        self.most = 1 + len(self._domains) + len(self._summaries) if run.evaluated else 0
        self.least = min(self.most, 4)

    def lines(self, height: int) -> Sequence[RenderableType]:
        """The rows that fit: the worst domains, in the order of their names."""
        room = height - 1 - len(self._summaries)
        domains = self._domains
        if room < len(domains):
            # One row counts the domains that are left out.
            lowest = sorted(domains, key=lambda series: (series.last is None, series.last or 0.0))
            kept = {series.name for series in lowest[: max(room - 1, 0)]}
            domains = [series for series in domains if series.name in kept]
        left_out = len(self._domains) - len(domains)
        values = [value for series in (*domains, *self._summaries) for value in series.values if value is not None]
        bounds = (min(values), max(values)) if values else None
        table = self._table()
        for series in domains:
            self._add(table, series, bounds)
        if left_out and room > 0:
            table.add_row(Text(f"+{left_out} better", FAINT))
        for series in self._summaries:
            self._add(table, series, bounds, is_summary=True)
        return [table]

    def _table(self) -> Table:
        run, is_middle = self._run, self._width >= MIDDLE
        table = Table.grid(padding=(0, 2 if is_middle else 1, 0, 0))
        names = [series.name for series in (*self._domains, *self._summaries)]
        table.add_column(width=_name_width(names, self._width), no_wrap=True)
        table.add_column(width=1)
        for _ in range(3 if is_middle else 2):
            table.add_column(width=NUMBER_WIDTH, justify="right")
        table.add_column()  # the curves: the one column that shrinks where there is no room
        first, last = run.evaluated[0]["round"], run.evaluated[-1]["round"]
        rounds = f"rounds {first} to {last}" if is_middle else f"round {last}"
        table.add_row(
            "own models" if run.are_own_models else "accuracy",
            "",
            "last",
            "change",
            *(["best"] if is_middle else []),
            Text(rounds, no_wrap=True, overflow="ellipsis"),
            style=HEADING,
        )
        return table

    def _add(
        self, table: Table, series: Series, bounds: tuple[float, float] | None, *, is_summary: bool = False
    ) -> None:
        is_worst = not is_summary and series.name == self._run.worst_domain
        style = WORST if is_worst else HEADING if is_summary else ""
        best = [Text(percent(series.best), FAINT)] if self._width >= MIDDLE else []
        table.add_row(
            Text(printable(series.name), style),
            Text("◀" if is_worst else "", style),
            Text(percent(series.last), style),
            Text(points(series.change), _change_style(series.change)),
            *best,
            Curve(series.values, bounds, WORST if is_worst else WORKS),
        )


class Results:
    """Loss terms, prototypes and the duration of the last round."""

    def __init__(self, run: RunHistory, width: int) -> None:
        self._run, self._width = run, width
        self.least, self.most = (1, 2) if run.rounds else (0, 0)

    def lines(self, height: int) -> Sequence[RenderableType]:
        """The losses, and in a second line the rest."""
        return [self._losses(), self._prototypes()][:height]

    def _losses(self) -> Text:
        losses = self._run.losses
        names = [f"{printable(series.name)} {number(series.last)}" for series in losses]
        free = self._width - LABEL_WIDTH - sum(cell_len(name) + 2 for name in names) + 2
        width = min(free // max(len(losses), 1) - 1, MAX_LOSS_CURVE)
        line = _label("loss")
        for index, (name, series) in enumerate(zip(names, losses, strict=True)):
            line.append("  " * (index > 0) + name)
            if width >= MIN_LOSS_CURVE:
                line.append(" " + curve(series.values, width), WORKS)
        return line

    def _prototypes(self) -> Text:
        prototypes, took = self._run.rounds[-1]["prototypes"], self._run.last_round_s
        line = _label("prototypes")
        line.append(f"{prototypes['local']} local → {prototypes['global']} global")
        return line if took is None else line.append(f"  ·  the last round took {exact(took)}")


class Clients:
    """A row for each client with its problem below it; those in trouble come first."""

    def __init__(self, run: RunHistory, width: int) -> None:
        self._run, self._width = run, width
        self._known = {client.client_id: client for client in run.clients}
        self._names = sorted({*self._known, *run.roster}, key=self._rank)
        self._name_width = _name_width(self._names, width)
        self._blocks = [self._block(name, PROBLEM_LINES) for name in self._names]
        self.most = 1 + sum(map(len, self._blocks)) if self._blocks else 0
        self.least = min(self.most, 3)

    def lines(self, height: int) -> Sequence[RenderableType]:
        """The clients that fit, and the number of the others with their activities in the last line."""
        if height >= self.most:
            return [self._heading(), *(line for block in self._blocks for line in block)]
        lines: list[RenderableType] = [self._heading()]
        num_shown = 0
        for name in self._names:
            block = self._block(name, 1)
            if len(lines) + len(block) > height - 1:
                break
            lines += block
            num_shown += 1
        if not num_shown and height > 2:
            lines += self._block(self._names[0], 1)[: height - 2]
            num_shown = 1
        left_out = self._names[num_shown:]
        lines.append(_one_line(Text(f"and {len(left_out)} more: {self._counts(left_out)}", FAINT)))
        return lines[:height]

    def _block(self, name: str, problem_lines: int) -> list[RenderableType]:
        client = self._known.get(name)
        problem = None if client is None else client.problem
        if problem is None:
            return [self._row(name, client)]
        sentence = "; ".join(filter(None, (problem.detail, problem.hint)))
        width = self._width - PROBLEM_INDENT
        lines = [Text(" " * PROBLEM_INDENT) + line for line in wrapped(sentence, width, problem_lines, TROUBLE)]
        return [self._row(name, client), *lines]

    def _heading(self) -> Text:
        heading = Text(f"{'clients'.ljust(self._name_width)}  {self._counts(self._names)}", HEADING)
        return _one_line(heading.append("  ·  not up to date", TROUBLE) if self._run.clients_trouble else heading)

    def _counts(self, names: Sequence[str]) -> str:
        words = ("away" if self._is_away(name) else _doing(self._run, name, self._known.get(name)) for name in names)
        return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())

    def _is_away(self, name: str) -> bool:
        client = self._known.get(name)
        return client is not None and not client.is_connected and name not in self._run.quarantined

    def _rank(self, name: str) -> tuple[bool, bool, str]:
        client = self._known.get(name)
        is_away = client is None or not client.is_connected
        is_well = not is_away and (client is None or client.problem is None) and name not in self._run.quarantined
        return is_well, name not in self._run.cohort, name

    def _row(self, name: str, client: Client | None) -> Table:
        doing = _doing(self._run, name, client)
        is_here = client is not None and client.is_connected
        is_working = client is not None and doing == client.activity.value and doing != ClientActivity.IDLE.value
        trouble = (self._run.has_clients and not is_here) or name in self._run.quarantined | self._run.dropped
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=self._name_width, no_wrap=True)
        table.add_column(width=ACTIVITY_WIDTH if is_here else None, no_wrap=True)
        cells: list[RenderableType] = [
            Text(printable(name)),
            Text(doing, TROUBLE if trouble else WORKS if is_working else ""),
        ]
        if client is None or not client.is_connected:
            table.add_row(*cells)
            return table
        if self._width >= MIDDLE:
            table.add_column(width=BAR_WIDTH)
            cells.append(bar(client.progress) if is_working else "")
        table.add_column(width=4, justify="right")
        table.add_column(width=SPEED_WIDTH, justify="right")
        speed = client.readings.get("samples_per_second", 0.0) if is_working else 0.0
        cells += [Text(f"{100 * client.progress:.0f}%" if is_working else ""), Text(f"{speed:.0f}/s" if speed else "")]
        if self._width >= WIDE and client.domain != name:
            table.add_column(no_wrap=True)
            cells.append(Text(printable(client.domain), FAINT))
        table.add_row(*cells)
        return table


class Notes:
    """The latest notes, newest at the bottom."""

    def __init__(self, run: RunHistory, width: int) -> None:
        self._run, self._width = run, width
        num_lines = sum(len(self._note(note)) for note in islice(reversed(run.notes), 100))
        self.most = num_lines + 1 if num_lines else 0
        self.least = min(self.most, 3)

    def lines(self, height: int) -> Sequence[RenderableType]:
        """The newest notes that fit; of one that does not fit whole, its beginning."""
        blocks: list[list[Text]] = []
        room = height - 1
        for note in reversed(self._run.notes):
            if room <= 0:
                break
            blocks.append(self._note(note)[:room])
            room -= len(blocks[-1])
        return [Text("notes", HEADING), *(line for block in reversed(blocks) for line in block)]

    def _note(self, note: Note) -> list[Text]:
        time = note.time.astimezone().strftime("%H:%M:%S" if self._width >= MIDDLE else "%H:%M")
        indent = len(time) + 1
        first, *others = wrapped(note.text, self._width - indent, NOTE_LINES, TROUBLE if note.is_trouble else "")
        return [Text.assemble((time, FAINT), " ", first), *(Text(" " * indent) + line for line in others)]


def bar(fraction: float) -> ProgressBar:
    """A bar as wide as there is room."""
    return ProgressBar(
        total=1.0, completed=fraction, style=FAINT, complete_style=WORKS, finished_style=WORKS, pulse_style=WORKS
    )


def wrapped(text: str, width: int, most: int, style: str) -> list[Text]:
    """Text of others on at most `most` lines; an ellipsis ends what was cut."""
    lines = list(Text(printable(text), style).wrap(Console(), max(width, 1)))
    shown = lines[:most]
    for line in shown:
        line.rstrip()
    if len(lines) > most:
        shown[-1].truncate(max(width - 1, 0))
        shown[-1].append("…")
    return shown


def _one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _label(name: str) -> Text:
    return _one_line(Text.assemble((name.ljust(LABEL_WIDTH), HEADING)))


def _name_width(names: Sequence[str], width: int) -> int:
    """Columns for these names."""
    longest = max((cell_len(printable(name)) for name in names), default=0)
    return min(max(longest, MIN_NAME_WIDTH), MAX_NAME_WIDTH if width >= WIDE else MIN_NAME_WIDTH)


def _change_style(change: float | None) -> str:
    if change is None or abs(change) < LEAST_CHANGE:
        return FAINT
    return "green" if change > 0 else "red"


def _doing(run: RunHistory, name: str, client: Client | None) -> str:
    """A client's activity."""
    if name in run.quarantined:
        return "quarantined"
    if name in run.retired:
        return "retired"
    if client is None:
        return "not here yet" if run.has_clients else "not known yet"
    if not client.is_connected:
        seen = client.last_seen_at
        return "away" if seen is None else f"away since {seen.astimezone():%H:%M:%S}"
    if client.run_id not in (None, run.run_id):
        return "other run"
    if client.activity is not ClientActivity.IDLE:
        return client.activity.value
    if run.phase in PHASES_OF_CLIENTS and name in run.done:
        return "done"
    return "left out" if name in run.dropped else "idle"
