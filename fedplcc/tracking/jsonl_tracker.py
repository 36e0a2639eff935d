"""Curves as lines of JSON: one for the run's beginning, one a round and one for its end. Several runs may share a file."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedplcc.runs.atomic_file import disk_errors, make_folder
from fedplcc.runs.run_folder import RUNS
from fedplcc.shared.config.run import canonical_json
from fedplcc.tracking.callbacks import RoundResult, RunEnd, RunStart
from fedplcc.tracking.measurements import measurements
from fedplcc.tracking.tracker import Tracker

FILE = "log.jsonl"
"""Its usual name, in the run's folder."""
MOST_BYTES = 1 << 30
"""Largest file that is read again at a start; a larger one is refused."""


class JsonlTracker(Tracker):
    """Appends lines to a file; each is written whole or, by a process that is killed, mended by the next one."""

    kind = "jsonl"
    _run_id, _label = "", ""

    def on_start(self, run: RunStart) -> None:
        """Find the run's lines in the file, and write the first one."""
        self._run_id, self._label = run.run_id, run.label
        self.file = Path(self.where) if self.where else (run.folder or RUNS / run.run_id) / FILE
        make_folder(self.file.parent)
        self._kept: set[tuple[str, int | None]] = set()
        with self._locked() as file:
            for line in file:
                entry = _entry(line)
                if entry.get("run_id") == run.run_id and entry.get("label") == run.label:
                    self._kept.add((str(entry.get("entry")), entry.get("round")))
        facts = {"config": run.config, "config_hash": run.config_hash, "tags": list(run.tags)}
        self._write("start", None, total_rounds=run.total_rounds, **facts)

    def on_round(self, result: RoundResult) -> None:
        """Write the round's line."""
        self._write("round", result.number, time=result.time.isoformat(), **measurements(result))

    def on_end(self, end: RunEnd) -> None:
        """Write the last line."""
        self._write("end", None, status=end.status, reason=end.reason)

    def _write(self, entry: str, number: int | None, **values: Any) -> None:
        if (entry, number) in self._kept:
            return
        head: dict[str, Any] = {"entry": entry, "run_id": self._run_id, "label": self._label}
        if number is not None:
            head["round"] = number
        with self._locked() as file:
            file.seek(0, os.SEEK_END)
            file.write(canonical_json({**head, **values}).encode() + b"\n")
        self._kept.add((entry, number))

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Open the file alone, without the part of a line that a killed process may have left at its end."""
        with disk_errors(self.file), self.file.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            if size > MOST_BYTES:
                raise OSError(None, f"it is larger than {MOST_BYTES} bytes; name another file")
            file.truncate(_end_of_lines(file, size))
            file.seek(0)
            yield file
            file.flush()
            os.fsync(file.fileno())


def _end_of_lines(file: BinaryIO, size: int) -> int:
    """Return the position behind the last line end."""
    end = size
    while end:
        begin = max(0, end - 65_536)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
