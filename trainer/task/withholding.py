"""What a client leaves out of its messages in a run whose claim covers all that is made of training images. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedplcc.shared.types import ClientProblem, Update

TOLD_TIMINGS = frozenset(
    {"build_seconds", "download_seconds", "received_bytes", "retries", "sent_bytes", "stage_seconds", "upload_seconds"}
)
"""Measurements of a task that no image has a part in."""


def without_counts(update: Update) -> Update:
    """Return an update without losses, excluded samples and samples of each class; their number stays."""
    return replace(update, num_excluded=0, class_counts=(0,) * len(update.class_counts), losses={}, timings={})


def told_timings(timings: Mapping[str, float], *, withholds: bool) -> dict[str, float]:
    """Return the measurements of a task that leave the client."""
    return {name: value for name, value in timings.items() if not withholds or name in TOLD_TIMINGS}


def without_detail(problem: ClientProblem) -> ClientProblem:
    """Return a problem that says its kind and what to do, and nothing of the images."""
    return replace(problem, detail="this client keeps its problems to itself; the log of its trainer has them")
