"""Committed rounds, from the events of a run's history or from the files that it left.

Times come with the events, so a run's rounds have the same values however often its history is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedplcc.runs.artifacts import MANIFEST, RunRecord
from fedplcc.shared.documents import Event
from fedplcc.tracking.callbacks import RoundResult


class RoundEvents:
    """Turns a run's events, which come in order, into its committed rounds."""

    def __init__(self) -> None:
        self._began_at: datetime | None = None

    def take(self, event: Event, *, is_new: bool = True) -> RoundResult | None:
        """Take the next event; returns the round that it commits, if it has results."""
        if event.type == "round_opened":
            self._began_at = event.time
        elif event.type == "run_recovered":
            self._began_at = None  # by the clock of another process, and nobody worked meanwhile
        elif event.type == "round_committed" and event.round is not None and event.data.get("metrics"):
            seconds = None if self._began_at is None else (event.time - self._began_at).total_seconds()
            # Others read the event's own after a callback has changed its copy.
            metrics = deepcopy(event.data["metrics"])
            return RoundResult(number=event.round, time=event.time, seconds=seconds, metrics=metrics, is_new=is_new)
        return None


def recorded_rounds(record: RunRecord, folder: Path) -> Iterator[RoundResult]:
    """Yield the rounds of a run whose history is gone, from its files.

    Their times are counted back from that of the folder's last file: a folder does not tell them.
    """
    seconds = {line["round"]: line.get("seconds", {}).get("total") for line in map(json.loads, record.timings_lines)}
    last = datetime.fromtimestamp((folder / MANIFEST).stat().st_mtime, UTC)
    left = sum(value or 0.0 for value in seconds.values())
    for line in record.metrics:
        took = seconds.get(line["round"])
        left -= took or 0.0
        time = last - timedelta(seconds=left)
        yield RoundResult(number=line["round"], time=time, seconds=took, metrics=line, is_new=False)
