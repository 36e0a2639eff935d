"""Runs on the disk as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.runs.local_runs import LocalRun, differences
from fedplcc.shared.scoring.scores import BALANCED
from fedplcc.terminal.numbers import percent

MOST_KEYS = 8
"""Most differing keys on a line."""
MOST_CHARACTERS = 32
"""Most characters of a value."""


def local_run_lines(runs: Sequence[LocalRun], keys: Sequence[str]) -> list[str]:
    """A heading, and a line for each run that ends with its values of these keys."""
    rows = [("folder", "method", "round", "mean", "worst", "began", "differs in")]
    for run in runs:
        own = {key: value for key, value in differences(run, keys).items() if key != "run.method"}
        parts = [f"{key}={_cut(value)}" for key, value in list(own.items())[:MOST_KEYS]]
        if len(own) > MOST_KEYS:
            parts.append(f"and {len(own) - MOST_KEYS} more")
        rounds = f"{run.round}/{run.total_rounds}" if run.has_ended else f"begun, {run.total_rounds}"
        kind = "balanced " if run.score == BALANCED else ""
        began = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M")
        rows.append(
            (str(run.folder), run.method, rounds, kind + percent(run.mean), percent(run.worst), began, " ".join(parts))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
