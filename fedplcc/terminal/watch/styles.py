"""Colours of a view, of the sixteen that every terminal lets its owner choose. Nothing is said by colour alone. Pure."""

from __future__ import annotations

WORKS, TROUBLE, FAINT, HEADING = "cyan", "yellow", "bright_black", "bold"
WORST = "bold yellow"
STATUS = {
    "running": "green",
    "completed": "green",
    "failed": "bold red",
    "stopped": "yellow",
    "stopping": "yellow",
    "paused": "yellow",
    "pending": "cyan",
}
"""Of a run."""
LEAST_CHANGE = 0.0005
"""Changes below are shown as zero."""


def change_style(change: float | None) -> str:
    """Of a difference of accuracies."""
    if change is None or abs(change) < LEAST_CHANGE:
        return FAINT
    return "green" if change > 0 else "red"
