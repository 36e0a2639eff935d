"""What code beside a run sees of it: its beginning, each committed round and its end.

All records are frozen and hold plain values, so no callback can change a byte of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


class StopRun(Exception):
    """Raised by a callback to end the run after the round that it was told of; the text is the run's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """A run at its beginning, or where it goes on.

    Attributes:
        run_id: Its id; that of a simulation is the same in every folder.
        label: Distinct name for people and trackers: the run's id, or DATASET/ROW/seed-SEED in a comparison.
        total_rounds: Rounds that it is configured for.
        config: The whole configuration with its defaults, as in run.json.
        config_hash: Names the configuration.
        tags: The tags that the run has at the gateway.
        folder: Folder of its results; None of a run that is deployed.
    """

    run_id: str
    label: str
    total_rounds: int
    config: Mapping[str, Any]
    config_hash: str
    tags: Sequence[str] = ()
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """A committed round.

    Attributes:
        number: Its number, from 1.
        time: When it committed.
        seconds: From its opening to its commit; None where the aggregator was started anew between them.
        metrics: Its line of metrics.jsonl.
        is_new: Whether it committed in this call. A call that goes on with a run repeats its earlier rounds first, so that
            a callback's own state is that of an uninterrupted run.
    """

    number: int
    time: datetime
    seconds: float | None
    metrics: Mapping[str, Any]
    is_new: bool = True

    @property
    def mean_accuracy(self) -> float | None:
        """Mean over the domains, a fraction; None where the round was not evaluated."""
        return self._accuracy("mean")

    @property
    def worst_accuracy(self) -> float | None:
        """Accuracy of the worst domain, a fraction; None where the round was not evaluated."""
        return self._accuracy("worst")

    @property
    def accuracy(self) -> dict[str, float | None]:
        """Accuracy by domain, fractions; empty where the round was not evaluated."""
        return {
            name: value for name, value in (self.metrics["accuracy"] or {}).items() if name not in ("mean", "worst")
        }

    @property
    def loss(self) -> dict[str, float]:
        """Mean training loss by term."""
        return dict(self.metrics["loss"])

    def _accuracy(self, name: str) -> float | None:
        value: float | None = (self.metrics["accuracy"] or {}).get(name)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """A run that has ended.

    Attributes:
        status: completed, stopped or failed.
        reason: Why it was stopped or failed.
        folder: Folder of its results; None of a run that is deployed.
    """

    status: str
    reason: str = ""
    folder: Path | None = None


class Callback:
    """Told of a run as it goes; override what you need.

    Methods are called in the thread that trains, in order: `on_start`, `on_round` for each round from the first, `on_end`.
    An error in one ends the call with that error; the run is kept, and the same call goes on where it stopped.
    """

    @property
    def name(self) -> str:
        """Its name in the note on an error."""
        return type(self).__name__

    def on_start(self, run: RunStart) -> None:
        """The run begins, or goes on."""

    def on_round(self, result: RoundResult) -> None:
        """A round has committed.

        Raises:
            StopRun: The run is to end after this round.
        """

    def on_end(self, end: RunEnd) -> None:
        """The run has ended and its files are written."""
