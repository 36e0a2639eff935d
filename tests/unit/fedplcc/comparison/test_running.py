"""What a worker says of its cell, and how that is shown; training itself is in tests/integration/test_compare.py."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fedplcc.comparison import running
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.training_display import CellProgress, CellsShown
from fedplcc.interruption import Interrupted
from shared.documents import Event
from shared.errors import InvalidData
from tests.support.records.comparisons import cells_of, write_comparison


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return cells_of(write_comparison(tmp_path), tmp_path / "out")[0]


def outcome_of(cell: Cell, monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> tuple[str, str]:
    """What a worker answers whose training ends so."""

    def train_cell(cell: Cell, progress: Any, *, device: str, should_stop: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(running, "train_cell", train_cell)
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        return running._outcome_of(cell, theirs, "cpu")


def test_a_worker_tells_how_its_cell_ended(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome_of(cell, monkeypatch, None) == (running.ENDED, "")
    assert outcome_of(cell, monkeypatch, Interrupted()) == (running.INTERRUPTED, "")
    assert outcome_of(cell, monkeypatch, InvalidData("no such file")) == (running.FAILED, "no such file")


def test_a_bug_is_one_cells_failure_and_keeps_its_traceback(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, sentence = outcome_of(cell, monkeypatch, ZeroDivisionError("division by zero"))
    assert kind == running.FAILED
    assert sentence == "ZeroDivisionError: division by zero (its traceback is on stderr)", "the same on every run"
    told = capfd.readouterr().err
    assert told.startswith("digits/average/seed-0:\nTraceback")


def test_a_worker_outlives_ctrl_c_even_while_it_is_loading() -> None:
    worker = running._started(1, "cpu")
    try:
        os.kill(worker.process.pid, signal.SIGINT)
    finally:
        running._end(worker)
    assert worker.process.exitcode == 0, "it was told to end, and did"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_a_worker_that_ends_within_a_message_has_died(cell: Cell) -> None:
    ours, theirs = multiprocessing.Pipe()
    ended = SimpleNamespace(join=lambda: None)
    with ours:
        os.write(theirs.fileno(), (100).to_bytes(4, "big") + b"a part")
        theirs.close()
        assert running._heard(running._Worker(ended, ours, 1, cell)) == (running.FAILED, None)


def test_what_a_worker_prints_is_not_among_results(tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "from fedplcc.comparison import running\n"
        "running._outcome_of = lambda *_: (print('somebody'), sys.stdout.flush(), (running.ENDED, ''))[-1]\n"
        "ours, theirs = multiprocessing.Pipe()\n"
        "ours.send('a cell'); ours.send(running.STOP)\n"
        "running._work(theirs, 1, 'cpu')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("", "somebody\n")


def an_event(kind: str, number: int | None = None, **data: Any) -> Event:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    return Event(sequence=1, time=time, type=kind, run_id="r", round=number, client_id="mnist", data=data)


def test_of_a_run_rounds_and_what_a_person_should_know_are_passed_on() -> None:
    said: list[Any] = []
    progress = CellProgress(
        told_round=lambda number, mean: said.append((number, mean)), told_note=lambda text: said.append(text)
    )
    progress.step("mnist: reading its data")
    progress.event(an_event("round_opened", 1, cohort=["mnist"], phase="collecting"))
    progress.event(an_event("update_committed", 1))
    progress.event(an_event("update_refused", 1, detail="it is too far away"))
    progress.event(an_event("round_committed", 1, metrics={"accuracy": {"mean": 0.5}}))
    assert said == ["client mnist: an update was refused: it is too far away", (1, 0.5)]


def test_where_no_bar_can_move_each_cell_has_a_line_when_it_begins_and_ends(cell: Cell) -> None:
    told, other = io.StringIO(), replace(cell, seed=1)
    with CellsShown(Console(file=told, soft_wrap=True), total=2) as shown:
        shown.begins(cell)
        shown.round(cell, 1, 0.25)
        shown.round(cell, 2, 0.75)
        shown.note(cell, "an\x1b[31m odd note")
        shown.ends(cell, None)
        shown.begins(other)
        shown.ends(other, "client mnist: no such file")
        shown.stops()
    assert told.getvalue().splitlines() == [
        "digits/average/seed-0: begins, 1 of 2",
        "digits/average/seed-0: an\\x1b[31m odd note",
        "digits/average/seed-0: trained, mean accuracy 75.0% in the last round",
        "digits/average/seed-1: begins, 2 of 2",
        "digits/average/seed-1: failed: client mnist: no such file",
        "stopping before the next batch; Ctrl-C again stops at once",
    ]
