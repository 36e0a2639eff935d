"""Runs, and the clients that they wait for, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.filesize import decimal

from fedplcc.shared.documents import Client, Round, Run, RunSummary, RunTotals
from fedplcc.shared.types import ClientActivity, RoundPhase, RunStatus
from fedplcc.terminal.event_sentences import PHASES
from fedplcc.terminal.numbers import for_so_long, percent
from fedplcc.terminal.printable import printable

PHASES_OF_CLIENTS = frozenset((RoundPhase.INITIALISING, RoundPhase.COLLECTING, RoundPhase.EVALUATING))
"""Phases in which a round waits for clients; in the others the aggregator works."""
MAX_AWAITED_LINES = 10
"""Awaited clients that get a line each."""
MAX_AWAITED_NAMES = 3
"""Awaited clients that one line names."""


def run_lines(runs: Sequence[RunSummary]) -> list[str]:
    """A heading, and a line for each run."""
    rows = [("run", "method", "status", "round", "mean", "worst", "score", "created", "tags", "reason")]
    for run in runs:
        created = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        round_text = f"{max(run.round, 0)}/{run.total_rounds}"
        accuracies = (percent(run.mean_accuracy), percent(run.worst_accuracy), run.score.removesuffix("_accuracy"))
        status = "deleted" if run.is_deleted else "archived" if run.is_archived else run.status.value
        rows.append((run.run_id, run.method, status, round_text, *accuracies, created, " ".join(run.tags), run.reason))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        printable("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def totals_line(num_shown: int, total: int, totals: RunTotals) -> str:
    """How many of the matching runs are shown, and how many there are of each status."""
    counts = ", ".join(f"{number} {status}" for status, number in totals.model_dump().items() if number)
    return f"{num_shown} of {total} run{'' if total == 1 else 's'}{f'; {counts}' if counts else ''}"


def label_lines(run: Run) -> list[str]:
    """A line with the tags of a run, one that it is archived, and its notes."""
    out = [f"tags: {' '.join(run.tags)}"] if run.tags else []
    out += ["it is archived"] if run.is_archived else []
    return [printable(line) for line in (*out, *run.notes.splitlines())]


def server_state_lines(run: Run) -> list[str]:
    """A line with what the server keeps for the next round, if it keeps anything."""
    kept = [f"{role} ({decimal(size)})" for role, size in run.server_state.items()]
    return [printable(f"the server keeps {', '.join(kept)}")] if kept else []


def warning_lines(run: Run) -> list[str]:
    """A line for each warning about a run."""
    return [printable(f"warning: {warning.sentence}") for warning in run.warnings]


def refusal_lines(run: Run) -> list[str]:
    """A line for each quarantined client, and for each other client with refused updates."""
    out = [
        f"client {client.client_id} is quarantined: {client.reason}; let it in again with: "
        f"fedplcc run client release {run.run_id} {client.client_id}"
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
    """A line for each client that one of these rounds went on without; quarantined ones are in `refusal_lines`."""
    return [
        printable(f"round {each.round} went on without client {client.client_id}, {client.reason}: {client.detail}")
        for each in rounds
        for client in each.dropped
        if client.reason != "quarantined"
    ]


def awaited_lines(run: Run, rounds: Sequence[Round], clients: Sequence[Client]) -> list[str]:
    """A line for each client that an open run waits for, with its activity; those that make no progress come first."""
    awaited = _awaited(run, rounds, clients)
    lines = [printable(f"waits for client {name}: {doing}") for name, doing in awaited[:MAX_AWAITED_LINES]]
    return (
        lines if len(awaited) <= MAX_AWAITED_LINES else [*lines, f"waits for {len(awaited) - MAX_AWAITED_LINES} more"]
    )


def status_line(run: Run, rounds: Sequence[Round], clients: Sequence[Client], since: float | None = None) -> str:
    """The state of an open run and the clients that it waits for, on one line.

    Args:
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
        *(f"waits for {name} ({doing})" for name, doing in awaited[:MAX_AWAITED_NAMES]),
    ]
    if len(awaited) > MAX_AWAITED_NAMES:
        parts.append(f"and for {len(awaited) - MAX_AWAITED_NAMES} more")
    return printable("; ".join(parts))


def _awaited(run: Run, rounds: Sequence[Round], clients: Sequence[Client]) -> list[tuple[str, str]]:
    """Clients that a run waits for now, to do their part or to join, with their activity; first those without progress."""
    known = {client.client_id: client for client in clients}
    if run.status is RunStatus.RUNNING and run.phase in PHASES_OF_CLIENTS:
        dropped = {client.client_id for each in rounds if each.round == run.round for client in each.dropped}
        awaited = set(run.cohort) - set(run.done_clients) - dropped
    elif run.status is RunStatus.PENDING:
        awaited = {name for name in run.roster if name not in known or not known[name].is_connected}
    else:
        return []
    awaited -= {client.client_id for client in run.quarantined} | {client.client_id for client in run.retired}
    moving = {client.client_id for client in clients if client.is_connected and client.problem is None}
    return [(name, _doing(known.get(name))) for name in sorted(awaited, key=lambda name: (name in moving, name))]


def _doing(client: Client | None) -> str:
    """The activity of an awaited client, with its problem."""
    if client is None:
        return "has not joined yet"
    if client.is_revoked:
        doing = "revoked"
    elif not client.is_connected:
        seen = client.last_seen_at
        doing = "away" if seen is None else f"away since {seen.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    elif client.activity is ClientActivity.IDLE:
        doing = "idle"
    else:
        doing = f"{client.activity.value}, {100 * client.progress:.0f}% done"
    problem = client.problem
    return "; ".join(filter(None, (doing, *((problem.detail, problem.hint) if problem is not None else ()))))
