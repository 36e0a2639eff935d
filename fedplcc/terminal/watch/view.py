"""The screen of a run that is being watched: lines for a width and a height, made of what is known. Pure.

What a person looks for first stands at the top: where the run is, then how good it is, then who works, then what happened.
Nothing of what others wrote reaches the terminal unescaped.
"""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from fedplcc.terminal.event_notes import PHASES, PHASES_OF_CLIENTS
from fedplcc.terminal.numbers import about, for_so_long
from fedplcc.terminal.watch.glyphs import bar
from fedplcc.terminal.watch.layout import shared_out
from fedplcc.terminal.watch.screen import GAP, MARGIN, Screen
from fedplcc.terminal.watch.sections import LABEL_WIDTH, Accuracy, Clients, Facts, Notes, Section
from fedplcc.terminal.watch.styles import FAINT, HEADING, STATUS, TROUBLE, WORKS, WORST
from fedplcc.terminal.watch.watched_run import WatchedRun


def view(run: WatchedRun, screen: Screen, *, now: datetime, where: str = "") -> list[Text]:
    """The lines of a run's screen, at most as many as it is high and none wider than it is.

    Args:
        run: What is known.
        screen: Where it is shown.
        now: The present, for how long a phase has lasted.
        where: The gateway, for the last line.
    """
    head, foot = _head(run, screen, now), _foot(run, screen, where)
    sections: list[Section] = [Accuracy(run, screen), Facts(run, screen), Clients(run, screen), Notes(run, screen)]
    rest = screen.height - len(head) - 1
    given = shared_out(rest, [section.wish for section in sections])
    filled = [section.lines(height) for section, height in zip(sections, given, strict=True) if height]
    # A blank line before each section where all of them fit in full.
    spare = rest - sum(map(len, filled))
    body: list[Text] = []
    for lines in filled:
        if spare > 0:
            body.append(Text())
            spare -= 1
        body += lines
    body = (head + body)[: max(screen.height - 1, 0)]
    blank = [Text()] * (screen.height - 1 - len(body))
    return [screen.fitted(line) for line in (*body, *blank, foot)][: screen.height]


# The head: which run, where it is, what happens now


def _head(run: WatchedRun, screen: Screen, now: datetime) -> list[Text]:
    status = "pauses after this round" if run.is_pause_requested and run.status == "running" else run.status
    title = Text.assemble(
        MARGIN,
        (screen.clean(run.run_id), HEADING),
        GAP,
        (status, STATUS.get(run.status, "")),
        GAP,
        screen.clean(run.method),
    )
    lines = [title]
    if run.reason:
        lines += screen.wrapped(run.reason, TROUBLE, most=2)
    return [*lines, _rounds(run, screen), _phase(run, screen, now)]


def _rounds(run: WatchedRun, screen: Screen) -> Text:
    text = f"{run.num_committed} of {run.total_rounds}"
    if run.left_s is not None and run.num_committed < run.total_rounds:
        text += f", {about(run.left_s)} left"
    return _bar_line("rounds", run.num_committed / max(run.total_rounds, 1), text, screen)


def _phase(run: WatchedRun, screen: Screen, now: datetime) -> Text:
    if run.status == "pending":
        here = sum(client.is_connected for client in run.clients)
        whom = f"{here} of {len(run.roster)} clients are here" if run.roster else f"{here} clients are here"
        whom = whom if run.has_clients else "for clients"
        return Text.assemble(MARGIN, (screen.cell("waiting", LABEL_WIDTH), WORKS), whom)
    if run.status == "paused":
        how = f"go on with: fedplcc run resume {screen.clean(run.run_id)}"
        return Text.assemble(MARGIN, (screen.cell("paused", LABEL_WIDTH), STATUS["paused"]), how)
    if run.status not in ("running", "stopping") or run.round < 0:
        return Text()
    label = PHASES.get(run.phase, run.phase)
    since = "" if run.phase_began_at is None else for_so_long((now - run.phase_began_at).total_seconds())
    if run.phase not in PHASES_OF_CLIENTS:
        return Text.assemble(MARGIN, (screen.cell(label, LABEL_WIDTH), WORKS), f"round {run.round}", since)
    num_expected = len(run.expected)
    done = f"{len(run.done & run.expected)} of {num_expected} client{'' if num_expected == 1 else 's'} done"
    return _bar_line(label, run.phase_fraction or 0.0, done + since, screen)


def _bar_line(label: str, fraction: float, text: str, screen: Screen) -> Text:
    """A label, a bar and numbers; without the bar where it would be of a few characters."""
    width = screen.width - LABEL_WIDTH - 2 * len(MARGIN) - len(GAP) - max(len(text), 26 if screen.is_wide else 0)
    line = Text.assemble(MARGIN, (screen.cell(label, LABEL_WIDTH), WORKS))
    if width >= 6:
        done, rest = bar(fraction, width, screen.glyphs)
        line.append(done, WORKS).append(rest, FAINT).append(GAP)
    return line.append(text)


def _foot(run: WatchedRun, screen: Screen, where: str) -> Text:
    how = "Ctrl-C ends watching, not the run" if screen.is_middle else "Ctrl-C ends watching"
    trouble = run.connection_trouble or run.clients_trouble
    if trouble:
        return Text(MARGIN + screen.clean(trouble), WORST)
    there = f"connected to {where}"
    if not where or len(how) + len(there) + 4 > screen.width:
        return Text(MARGIN + how, FAINT)
    return Text(MARGIN + how + there.rjust(screen.width - len(how) - 2 * len(MARGIN)), FAINT)
