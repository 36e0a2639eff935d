"""The parts of a view: each says how many lines it needs and would fill, and fills those that it gets. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from rich.cells import cell_len
from rich.text import Text

from fedplcc.terminal.event_notes import PHASES_OF_CLIENTS
from fedplcc.terminal.numbers import exact, number, percent, points
from fedplcc.terminal.watch.glyphs import bar, sparkline
from fedplcc.terminal.watch.layout import Wish
from fedplcc.terminal.watch.screen import GAP, MARGIN, NARROW_NAME_WIDTH, Screen
from fedplcc.terminal.watch.styles import FAINT, HEADING, TROUBLE, WORKS, WORST, change_style
from fedplcc.terminal.watch.watched_run import Note, Series, WatchedRun
from shared.documents import Client

LABEL_WIDTH = 12
"""Of what stands left of a bar or of facts."""
NUMBER_WIDTH = 6
"""Of a percentage or a change."""
DOING_WIDTH, BAR_WIDTH, SPEED_WIDTH = 12, 12, 7
"""Of what a client does, of the bar of how far it is, and of how fast it is."""
MAX_SPARK_WIDTH = 60
LOSS_SPARK_WIDTHS = (16, 12, 8, 6, 0)
"""Widths of the curves of losses that are tried."""
PROBLEM_LINES = 2
"""Most lines for what is wrong with one client."""
NOTE_LINES = 2
"""Most lines of a note."""
LEAST_NOTES = 2
"""Lines of notes that are shown also where there is little room."""


class Section(Protocol):
    """A part of a view."""

    @property
    def wish(self) -> Wish:
        """The lines that it needs and would fill."""

    def lines(self, height: int) -> list[Text]:
        """At most so many lines."""


class Accuracy:
    """A row for each domain, and for their mean and their worst."""

    def __init__(self, run: WatchedRun, screen: Screen) -> None:
        self._run, self._screen = run, screen
        self._domains, self._summaries = run.accuracies, run.summaries
        most = 1 + len(self._domains) + len(self._summaries)
        self.wish = Wish(min(most, 4), most) if run.rounds else Wish(0, 0)

    def lines(self, height: int) -> list[Text]:
        """As many rows as fit: those that matter most, in the order of their names."""
        room = height - 1 - len(self._summaries)
        domains = self._domains
        if room < len(domains):
            # The worst ones matter most; what is left out is counted in a row of its own.
            lowest = sorted(domains, key=lambda series: (series.last is None, series.last or 0.0))
            kept = {series.name for series in lowest[: max(room - 1, 0)]}
            domains = [series for series in domains if series.name in kept]
        left_out = len(self._domains) - len(domains)
        values = [value for series in (*domains, *self._summaries) for value in series.values if value is not None]
        bounds = (min(values), max(values)) if values else None
        lines = [self._heading(), *(self._row(series, bounds) for series in domains)]
        if left_out and room > 0:
            lines.append(Text(f"{MARGIN}and {left_out} better {'one' if left_out == 1 else 'ones'}", FAINT))
        lines += [self._row(series, bounds, is_summary=True) for series in self._summaries]
        return lines[:height]

    def _heading(self) -> Text:
        number = self._run.rounds[-1]["round"]
        name = "own models" if self._run.are_own_models else "accuracy"
        names = ["last", "change", *(["best"] if self._screen.is_middle else [])]
        numbers = GAP.join(each.rjust(NUMBER_WIDTH) for each in names)
        heading = f"{MARGIN}{self._screen.cell(name, self._name_width)}  {GAP}{numbers}{GAP}"
        rounds = f"rounds {self._run.rounds[0]['round']} to {number}"
        return Text(heading + (rounds if len(heading + rounds) < self._screen.width else f"round {number}"), HEADING)

    @property
    def _name_width(self) -> int:
        names = (self._screen.clean(series.name) for series in (*self._domains, *self._summaries))
        longest = max(map(cell_len, names), default=0)
        return min(max(longest, NARROW_NAME_WIDTH), self._screen.name_width)

    def _row(self, series: Series, bounds: tuple[float, float] | None, *, is_summary: bool = False) -> Text:
        screen, is_worst = self._screen, not is_summary and series.name == self._run.worst_domain
        mark = f" {screen.glyphs.mark}" if is_worst else "  "
        name_style = WORST if is_worst else HEADING if is_summary else ""
        line = Text.assemble(
            MARGIN,
            (screen.cell(screen.clean(series.name), self._name_width) + mark, name_style),
            GAP,
            (percent(series.last).rjust(NUMBER_WIDTH), name_style),
            GAP,
            (points(series.change).rjust(NUMBER_WIDTH), change_style(series.change)),
        )
        if screen.is_middle:
            line.append(GAP + percent(series.best).rjust(NUMBER_WIDTH), FAINT)
        width = min(screen.width - line.cell_len - len(GAP) - len(MARGIN), MAX_SPARK_WIDTH)
        return line.append(GAP + sparkline(series.values, width, screen.glyphs, bounds), WORST if is_worst else WORKS)


class Facts:
    """Loss terms, prototypes and how long the last round took."""

    def __init__(self, run: WatchedRun, screen: Screen) -> None:
        self._run, self._screen = run, screen
        self.wish = Wish(1, 2) if run.rounds else Wish(0, 0)

    def lines(self, height: int) -> list[Text]:
        """The losses, and where there is a second line the rest."""
        return [self._losses(), self._counts()][:height]

    def _losses(self) -> Text:
        """Every term with as much of its curve as fits; terms that do not fit are counted."""
        room = self._screen.width - len(MARGIN)
        lines = (self._all_losses(width) for width in LOSS_SPARK_WIDTHS)
        whole = next((line for line in lines if line.cell_len <= room), None)
        return whole or self._some_losses(room)

    def _all_losses(self, spark_width: int) -> Text:
        line = self._label("loss")
        for index, series in enumerate(self._run.losses):
            line.append(GAP * (index > 0) + self._loss(series))
            if spark_width:
                line.append(" " + sparkline(series.values, spark_width, self._screen.glyphs), WORKS)
        return line

    def _some_losses(self, room: int) -> Text:
        line, losses = self._label("loss"), self._run.losses
        for index, series in enumerate(losses):
            more = f"+{len(losses) - index} more"
            if line.cell_len + cell_len(self._loss(series) + GAP + more) > room:
                return line.append(more, FAINT)
            line.append(self._loss(series) + GAP)
        return line

    def _loss(self, series: Series) -> str:
        return f"{self._screen.clean(series.name)} {number(series.last)}"

    def _label(self, name: str) -> Text:
        return Text.assemble(MARGIN, (self._screen.cell(name, LABEL_WIDTH), HEADING))

    def _counts(self) -> Text:
        prototypes, glyphs = self._run.rounds[-1]["prototypes"], self._screen.glyphs
        line = self._label("prototypes")
        line.append(f"{prototypes['local']} local {glyphs.arrow} {prototypes['global']} global")
        took = f"  {glyphs.dot}  the last round took {exact(self._run.seconds[-1])}" if self._run.seconds else ""
        return line.append(took) if line.cell_len + len(took) < self._screen.width else line


class Clients:
    """A row for each client, those in trouble first, with what is wrong below it."""

    def __init__(self, run: WatchedRun, screen: Screen) -> None:
        self._run, self._screen = run, screen
        self._known = {client.client_id: client for client in run.clients}
        self._names = sorted({*self._known, *run.roster}, key=self._rank)
        self._blocks = [self._block(name, PROBLEM_LINES) for name in self._names]
        most = 1 + sum(map(len, self._blocks))
        self.wish = Wish(min(most, 3), most) if self._blocks else Wish(0, 0)

    def lines(self, height: int) -> list[Text]:
        """As many clients as fit, and in the last line what the others do."""
        if height >= self.wish.most:
            return [self._heading(), *(line for block in self._blocks for line in block)]
        lines, num_shown = [self._heading()], 0
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
        lines.append(Text(f"{MARGIN}and {len(left_out)} more: {self._counts(left_out)}", FAINT))
        return lines[:height]

    def _block(self, name: str, problem_lines: int) -> list[Text]:
        client = self._known.get(name)
        return [self._row(name, client), *self._problem(client, problem_lines)]

    def _heading(self) -> Text:
        screen, text = self._screen, f"{MARGIN}{self._screen.cell('clients', self._name_width)}{GAP}"
        text += self._counts(self._names)
        if self._run.clients_trouble:
            return Text.assemble((text, HEADING), (f"  {screen.glyphs.dot}  not up to date", TROUBLE))
        return Text(text, HEADING)

    def _counts(self, names: Sequence[str]) -> str:
        words = (_doing(self._run, name, self._known.get(name)).partition(" since")[0] for name in names)
        return ", ".join(f"{count} {word}" for word, count in Counter(words).most_common())

    @property
    def _name_width(self) -> int:
        longest = max((cell_len(self._screen.clean(name)) for name in self._names), default=0)
        return min(max(longest, NARROW_NAME_WIDTH), self._screen.name_width)

    def _rank(self, name: str) -> tuple[bool, bool, str]:
        client = self._known.get(name)
        is_away = client is None or not client.is_connected
        is_well = not is_away and (client is None or client.problem is None) and name not in self._run.quarantined
        return is_well, name not in self._run.cohort, name

    def _row(self, name: str, client: Client | None) -> Text:
        screen, doing = self._screen, _doing(self._run, name, client)
        is_working = client is not None and doing == client.activity.value and doing != "idle"
        is_away = self._run.has_clients and (client is None or not client.is_connected)
        trouble = is_away or name in self._run.quarantined | self._run.dropped
        style = TROUBLE if trouble else WORKS if is_working else ""
        row = Text.assemble(MARGIN, (screen.cell(screen.clean(name), self._name_width)), GAP)
        if client is None or not client.is_connected:
            return row.append(doing, style)
        row.append(screen.cell(doing, DOING_WIDTH), style)
        if screen.is_middle:
            done, rest = bar(client.progress, BAR_WIDTH, screen.glyphs) if is_working else ("", "")
            row.append(GAP + done, WORKS).append(rest, FAINT).append(" " * (BAR_WIDTH - len(done + rest)))
        row.append(f" {f'{100 * client.progress:.0f}%' if is_working else '':>4}")
        speed = client.readings.get("samples_per_second", 0.0) if is_working else 0.0
        row.append(GAP + (f"{speed:.0f}/s" if speed else "").rjust(SPEED_WIDTH))
        if screen.is_wide and client.domain != name:
            row.append(GAP + screen.clean(client.domain), FAINT)
        return row

    def _problem(self, client: Client | None, most: int) -> list[Text]:
        if client is None or client.problem is None:
            return []
        sentence = "; ".join(filter(None, (client.problem.detail, client.problem.hint)))
        return self._screen.wrapped(sentence, TROUBLE, most=most, indent="   ")


class Notes:
    """What happened last, newest at the bottom."""

    def __init__(self, run: WatchedRun, screen: Screen) -> None:
        self._run, self._screen = run, screen
        num_lines = sum(len(self._note(note)) for note in self._newest_first(screen.height))
        self.wish = Wish(min(num_lines, LEAST_NOTES) + 1, num_lines + 1) if num_lines else Wish(0, 0)

    def lines(self, height: int) -> list[Text]:
        """As many of the last notes as fit; of a note that does not fit whole its beginning."""
        blocks: list[list[Text]] = []
        room = height - 1
        for note in self._newest_first(room):
            block = self._note(note)[:room]
            blocks.append(block)
            room -= len(block)
            if room <= 0:
                break
        return [Text(f"{MARGIN}notes", HEADING), *(line for block in reversed(blocks) for line in block)]

    def _newest_first(self, most: int) -> list[Note]:
        return list(islice(reversed(self._run.notes), max(most, 0)))

    def _note(self, note: Note) -> list[Text]:
        time = note.time.astimezone().strftime("%H:%M:%S" if self._screen.is_middle else "%H:%M")
        indent = MARGIN + " " * (len(time) + 1)
        style = TROUBLE if note.is_trouble else ""
        first, *others = self._screen.wrapped(note.text, style, most=NOTE_LINES, indent=indent)
        return [Text.assemble(MARGIN, (time, FAINT), " ", (first.plain[len(indent) :], style)), *others]


def _doing(run: WatchedRun, name: str, client: Client | None) -> str:
    """What a client is doing, in words."""
    if name in run.quarantined:
        return "quarantined"
    if client is None:
        return "not here yet" if run.has_clients else "not known yet"
    if not client.is_connected:
        seen = client.last_seen_at
        return "away" if seen is None else f"away since {seen.astimezone():%H:%M:%S}"
    if client.run_id not in (None, run.run_id):
        return "other run"
    if client.activity.value != "idle":
        return client.activity.value
    if run.phase in PHASES_OF_CLIENTS and name in run.done:
        return "done"
    return "left out" if name in run.dropped else "idle"
