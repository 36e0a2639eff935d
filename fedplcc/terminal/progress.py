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
from rich.table import Column

from fedplcc.runs.plots import SUMMARIES, domains_of
from fedplcc.terminal.event_notes import PHASES, PHASES_OF_CLIENTS, note_of
from fedplcc.terminal.numbers import for_so_long
from fedplcc.terminal.printable import printable
from shared.documents import Client, Event, Round, Run
from shared.types import ClientActivity, RunStatus

GAP = "  "
ROUND_WIDTH = 6
LOCAL_WIDTHS = {"local mean": 10, "local worst": 11}
"""Columns of a round whose clients have models of their own beside the global one, and how wide they are."""
EXTRA_WIDTHS = {"loss": 7, "prototypes": 13, "time": 7}
"""Columns of a round beside its accuracies, and how wide they are."""
LAST_ROUNDS = 3
"""Rounds of a run that are shown when its screen is gone."""
MOST_AWAITED = 10
"""Clients that a run waits for that are named, in a line each."""
MOST_TOLD = 3
"""Of them in the one line of who watches."""
DROPPED_FIRST = ("prototypes", "time", "loss", "local worst", "local mean")
OWN_MODELS = "accuracies are of the clients' own models: this run shares none, its global model stays the first"


def console_for(*, json: bool) -> Console:
    """Where progress goes: stdout, or stderr where stdout is for a program."""
    return Console(stderr=json, highlight=False, markup=False, emoji=False, soft_wrap=True)


def shows_bars(console: Console) -> bool:
    """Whether a bar can move there; a file, a pipe and a dumb terminal get lines instead."""
    return console.is_terminal and not console.is_dumb_terminal


class RoundTable:
    """Lines of text, one per round, under a heading that names the domains. Pure.

    What does not fit into the width is left out, whole columns at a time: first the prototypes, then the time, the loss,
    what there is of local models, and at last the domains from the right. Round, mean and worst stay.
    """

    def __init__(
        self, domains: Sequence[str], width: int | None = None, *, has_local: bool = False, has_time: bool = True
    ) -> None:
        """Choose the columns.

        Args:
            domains: Names of the domains, in the order of their columns.
            width: Characters of a line; None for no limit.
            has_local: Whether clients have models of their own beside the global one.
            has_time: Whether it is known how long any of the rounds took.
        """
        self.domains, self.has_local = tuple(domains), has_local
        shown = list(self.domains)
        extras = {**(LOCAL_WIDTHS if has_local else {}), **EXTRA_WIDTHS}
        if not has_time:
            del extras["time"]
        while width is not None and (extras or shown) and self._length(shown, extras) > width:
            if extras:
                del extras[next(name for name in DROPPED_FIRST if name in extras)]
            else:
                shown.pop()
        self._extras = extras
        self._names = (*shown, *SUMMARIES)
        self._widths = _name_widths(self._names)

    @classmethod
    def of(cls, metrics: Mapping[str, Any], width: int | None = None, *, has_time: bool = True) -> Self:
        """A table for rounds like this one."""
        has_local = bool(metrics.get("accuracy_local")) and not metrics.get("accuracy_of")
        return cls(domains_of([metrics]), width, has_local=has_local, has_time=has_time)

    def heading(self) -> str:
        """The names of the columns."""
        names = (name.rjust(self._widths[name]) for name in self._names)
        return GAP.join(
            ("round".rjust(ROUND_WIDTH), *names, *(name.rjust(self._extras[name]) for name in self._extras))
        )

    def line(self, metrics: Mapping[str, Any], seconds: float | None = None) -> str:
        """A round's accuracies in percent, its cross-entropy, its local and global prototypes, and how long it took.

        Where clients have models of their own the accuracies of those too, as a mean and the worst domain.
        """
        accuracy, prototypes = metrics["accuracy"], metrics["prototypes"]
        values = (_percent(accuracy.get(name)).rjust(self._widths[name]) for name in self._names)
        local = metrics.get("accuracy_local") or {}
        extras = {
            "local mean": _percent(local.get("mean")),
            "local worst": _percent(local.get("worst")),
            "loss": _number(metrics["loss"].get("ce"), 3),
            "prototypes": f"{prototypes['local']} -> {prototypes['global']}",
            "time": _number(seconds, 1, " s"),
        }
        shown = (extras[name].rjust(width) for name, width in self._extras.items())
        return GAP.join((str(metrics["round"]).rjust(ROUND_WIDTH), *values, *shown))

    @staticmethod
    def _length(domains: Sequence[str], extras: Mapping[str, int]) -> int:
        widths = (ROUND_WIDTH, *_name_widths((*domains, *SUMMARIES)).values(), *extras.values())
        return sum(widths) + len(GAP) * (len(widths) - 1)


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
        self.num_lines = 0
        """Lines that were printed so far."""

    def __enter__(self) -> Self:
        if shows_bars(self._console):
            self._bar = _bar(self._console, MofNCompleteColumn(), TimeElapsedColumn())
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
        self.num_lines += 1

    @property
    def has_bar(self) -> bool:
        """Whether a bar shows what happens now."""
        return self._bar is not None

    def now(self, text: str) -> None:
        """Say what happens at this moment; only the bar shows it."""
        if self._bar is not None:
            self._bar.update(self._bar_task, description=text)

    def step(self, text: str) -> None:
        """Say what begins and may take a while: on the bar, or in a line where there is none."""
        if self._bar is None:
            self.note(text)
        else:
            self.now(text)

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
        elif (text := note_of(event)) is not None:
            self.note(text)

    def _committed(self, event: Event) -> None:
        metrics = event.data.get("metrics")
        if metrics is None:
            return
        table = RoundTable.of(metrics, self._console.width if self._bar is not None else None)
        if self._table is None and metrics.get("accuracy_of"):
            self.note(OWN_MODELS)
        if self._table is None or (self._table.domains, self._table.has_local) != (table.domains, table.has_local):
            self._table = table
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
def shown_transfers(console: Console, doing: str = "fetching") -> Iterator[Callable[[str, int, int], None]]:
    """Within the block, show transfers: call what is given with a file's name, new bytes and its size.

    A bar for each file on a terminal; elsewhere a line when it begins.
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
    """Within the block, show so many steps of work: call what is given when one begins.

    One bar on a terminal; elsewhere a line for each step.
    """
    with _bar(console, MofNCompleteColumn(), TimeElapsedColumn(), disable=not shows_bars(console)) as shown:
        bar, begun = shown.add_task("", total=count), 0

        def step(text: str) -> None:
            nonlocal begun
            shown.update(bar, description=text, completed=begun)
            begun += 1
            if not shows_bars(console):
                console.print(text)

        yield step


def last_lines(
    rounds: Sequence[Mapping[str, Any]], seconds: Sequence[float] = (), width: int | None = None
) -> list[str]:
    """The last few of these rounds under a heading; nothing of no rounds.

    Args:
        rounds: Lines of metrics.jsonl.
        seconds: How long the last of them took; the last one that is known belongs to the last round.
        width: Characters of a line; None for no limit.
    """
    if not rounds:
        return []
    shown = rounds[-LAST_ROUNDS:]
    took = [*([None] * len(shown)), *seconds][-len(shown) :]
    table = RoundTable.of(rounds[-1], width, has_time=bool(seconds))
    return [table.heading(), *(table.line(*each) for each in zip(shown, took, strict=True))]


def run_lines(runs: Sequence[Run]) -> list[str]:
    """Runs for people: a heading and a line each."""
    rows = [("run", "method", "status", "round", "created", "reason")]
    for run in runs:
        created = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        round_text = f"{max(run.round, 0)}/{run.total_rounds}"
        rows.append((run.run_id, run.method, run.status.value, round_text, created, run.reason))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def admission_lines(run: Run) -> list[str]:
    """What there is to say of clients that take no part, and of those whose updates were refused: a line each."""
    out = [
        f"client {client.client_id} is quarantined: {client.reason}; let it in again with: "
        f"fedplcc run release {run.run_id} {client.client_id}"
        for client in run.quarantined
    ]
    quarantined = {client.client_id for client in run.quarantined}
    for refused in run.rejections:
        if refused.client_id not in quarantined:
            what = "1 update was" if refused.count == 1 else f"{refused.count} updates were"
            when = refused.last_at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
            out.append(
                f"client {refused.client_id}: {what} refused, the last one at {when} in round {refused.round}: "
                f"{refused.detail}"
            )
    return [printable(line) for line in out]


def dropped_lines(rounds: Sequence[Round]) -> list[str]:
    """Without whom these rounds went on: a line each. Of quarantined clients `admission_lines` tells."""
    return [
        printable(f"round {each.round} went on without client {client.client_id}, {client.reason}: {client.detail}")
        for each in rounds
        for client in each.dropped
        if client.reason != "quarantined"
    ]


def awaited_lines(run: Run, rounds: Sequence[Round], clients: Sequence[Client]) -> list[str]:
    """Whom an open run waits for now and what each of them is at: a line each, those first that do not come further.

    Args:
        run: The run.
        rounds: Its last ones.
        clients: All that there are.
    """
    awaited = _awaited(run, rounds, clients)
    lines = [printable(f"waits for client {name}: {doing}") for name, doing in awaited[:MOST_AWAITED]]
    return lines if len(awaited) <= MOST_AWAITED else [*lines, f"waits for {len(awaited) - MOST_AWAITED} more"]


def standing_line(run: Run, rounds: Sequence[Round], clients: Sequence[Client], since: float | None = None) -> str:
    """What an open run is at, on one line, for who has heard nothing of it for a while.

    Args:
        run: The run.
        rounds: Its last ones.
        clients: All that there are.
        since: Seconds since its present phase began; None if unknown.
    """
    awaited = _awaited(run, rounds, clients)
    if run.status is RunStatus.RUNNING and run.phase is not None:
        head = f"round {run.round}: {PHASES.get(run.phase, run.phase)}" + ("" if since is None else for_so_long(since))
        if run.phase in PHASES_OF_CLIENTS:
            head += f", {len(run.done_clients)} of {len(run.cohort)} clients done"
    elif run.status is RunStatus.PENDING and run.roster:
        head = f"waiting for clients, {len(run.roster) - len(awaited)} of {len(run.roster)} are here"
    else:
        head = f"the run is {run.status.value}"
    parts = [
        head,
        *filter(None, (run.reason,)),
        *(f"waits for {name} ({doing})" for name, doing in awaited[:MOST_TOLD]),
    ]
    if len(awaited) > MOST_TOLD:
        parts.append(f"and for {len(awaited) - MOST_TOLD} more")
    return printable("; ".join(parts))


def _awaited(run: Run, rounds: Sequence[Round], clients: Sequence[Client]) -> list[tuple[str, str]]:
    """Clients that an open run waits for now, each with what it is at; those first that do not come further."""
    known = {client.client_id: client for client in clients}
    moving = {client.client_id for client in clients if client.is_connected and client.problem is None}
    if run.status is RunStatus.RUNNING and run.phase in PHASES_OF_CLIENTS:
        dropped = {client.client_id for each in rounds if each.round == run.round for client in each.dropped}
        awaited = set(run.cohort) - set(run.done_clients) - dropped
    elif run.status is RunStatus.PENDING:
        awaited = {name for name in run.roster if name not in known or not known[name].is_connected}
    else:
        awaited = set()
    awaited -= {client.client_id for client in run.quarantined}
    return [(name, _doing(known.get(name))) for name in sorted(awaited, key=lambda name: (name in moving, name))]


def _doing(client: Client | None) -> str:
    """What a client that is waited for is at."""
    if client is None:
        return "has not joined yet"
    if not client.is_connected:
        seen = client.last_seen_at
        doing = "away" if seen is None else f"away since {seen.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    elif client.activity is ClientActivity.IDLE:
        doing = "idle"
    else:
        doing = f"{client.activity.value}, {100 * client.progress:.0f}% done"
    problem = client.problem
    return "; ".join(filter(None, (doing, *((problem.detail, problem.hint) if problem is not None else ()))))


def _bar(console: Console, *columns: ProgressColumn, disable: bool = False) -> Progress:
    """A bar that says what happens, as wide as there is room for, and that leaves nothing behind."""
    description = TextColumn("{task.description}", table_column=Column(ratio=2, no_wrap=True, overflow="ellipsis"))
    # On a narrow terminal the words and the numbers say more than a bar of three characters.
    bar = (BarColumn(bar_width=None, table_column=Column(ratio=1)),) if console.width >= 60 else ()
    return Progress(description, *bar, *columns, console=console, transient=True, expand=True, disable=disable)


def _name_widths(names: Sequence[str]) -> dict[str, int]:
    return {name: max(len(name), 6) for name in names}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def _number(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"
