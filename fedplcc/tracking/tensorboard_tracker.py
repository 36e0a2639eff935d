"""Curves for TensorBoard, through its own writer of event files.

All numbers of a round are one record, which is whole or not there. At a start the records that earlier processes left are
read, and rounds among them are not written again.
"""

from __future__ import annotations

import time
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fedplcc.runs.atomic_file import make_folder
from fedplcc.runs.run_folder import RUNS
from fedplcc.tracking.callbacks import RoundResult, RunStart
from fedplcc.tracking.measurements import flat_configuration, measurements
from fedplcc.tracking.tracker import Tracker

FOLDER = "tensorboard"
"""The usual folder, in that of the run."""
CONFIGURATION = "configuration"
EVENT_FILES = "events.out.tfevents.*"


class TensorboardTracker(Tracker):
    """Writes scalars, and the configuration as text, into a folder of the run's own."""

    kind = "tensorboard"
    _writer: EventFileWriter | None = None

    def on_start(self, run: RunStart) -> None:
        """Read what is there, and begin another event file."""
        home = run.folder or RUNS / run.run_id
        self.folder = Path(self.where) / run.label if self.where else home / FOLDER
        make_folder(self.folder)
        self._kept = _kept_steps(self.folder)
        _wait_for_a_name_of_its_own(self.folder)
        self._writer = EventFileWriter(str(self.folder))
        if 0 not in self._kept:
            table = ["| key | value |", "|---|---|"]
            table += [f"| {key} | {_cell(value)} |" for key, value in flat_configuration(run.config).items()]
            table += [f"| tags | {_cell(', '.join(run.tags))} |"] if run.tags else []
            self._write(Event(step=0, summary=text_pb(CONFIGURATION, "\n".join(table))))

    def on_round(self, result: RoundResult) -> None:
        """Write the round's record."""
        if result.number in self._kept:
            return
        values = [Summary.Value(tag=name, simple_value=value) for name, value in measurements(result).items()]
        self._write(Event(step=result.number, wall_time=result.time.timestamp(), summary=Summary(value=values)))

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, event: Event) -> None:
        assert self._writer is not None, "on_start comes first"
        self._writer.add_event(event)
        self._writer.flush()
        self._kept.add(event.step)


def _kept_steps(folder: Path) -> set[int]:
    """Return the rounds in the event files of a folder; 0 stands for the configuration."""
    return {
        event.step
        for file in sorted(folder.glob(EVENT_FILES))
        for event in EventFileLoader(str(file)).Load()
        if event.HasField("summary")
    }


def _wait_for_a_name_of_its_own(folder: Path) -> None:
    """Wait until no event file is named by the present second: TensorBoard reads the files in the order of their names."""
    end = time.monotonic() + 1.0
    while any(folder.glob(f"{EVENT_FILES[:-1]}{int(time.time()):010d}.*")) and time.monotonic() < end:
        time.sleep(0.02)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
