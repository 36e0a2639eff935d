"""Between a simulation and its callbacks: tells them of the run's rounds, and the simulation of their wish to end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplcc.runs.artifacts import RunRecord
from fedplcc.shared.documents import Event
from fedplcc.shared.types import Run
from fedplcc.tracking.callbacks import RunEnd, RunStart
from fedplcc.tracking.observation import Observation
from fedplcc.tracking.round_events import RoundEvents, recorded_rounds


class RunWatch:
    """Watches one simulation, or the folder of one that has ended."""

    def __init__(self, observation: Observation, label: str | None = None) -> None:
        """Prepare it.

        Args:
            label: Name of the run for trackers; its id if None.
        """
        self._observation, self._label, self._rounds = observation, label, RoundEvents()
        self._known = 0

    def close(self) -> None:
        """Let go of what the callbacks hold, whether or not the run has ended."""
        self._observation.close()

    def begins(self, run: Run, manifest: Mapping[str, Any], folder: Path, last_event: int) -> None:
        """Tell of the run's beginning; events up to `last_event` are not new."""
        self._known = last_event
        self._start(run.run_id, run.config_hash, manifest, folder)

    def event(self, event: Event) -> None:
        """Take an event of the run."""
        result = self._rounds.take(event, is_new=event.sequence > self._known)
        if result is not None:
            self._observation.round(result)

    def stop_reason(self) -> str | None:
        """Return why the run is to end, or None."""
        return self._observation.stop_reason

    def ends(self, record: RunRecord, folder: Path) -> None:
        """Tell of the run's end; its files are written."""
        self._observation.end(RunEnd(status=record.status, reason=record.reason, folder=folder))

    def ended_before(self, record: RunRecord, folder: Path) -> None:
        """Tell of a run whose folder was whole already, from its files."""
        manifest = record.manifest
        self._start(manifest["run_id"], manifest["config_hash"], manifest, folder)
        for result in recorded_rounds(record, folder):
            self._observation.round(result)
        self.ends(record, folder)

    def _start(self, run_id: str, config_hash: str, manifest: Mapping[str, Any], folder: Path) -> None:
        self._observation.start(
            RunStart(
                run_id=run_id,
                label=self._label or run_id,
                total_rounds=manifest["total_rounds"],
                config=manifest["config"],
                config_hash=config_hash,
                folder=folder,
            )
        )
