"""A whole comparison through the command: equal computed bytes on every run, interrupted or not, and through failures."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.plan import Cell, plan
from fedplcc.comparison.report.tables import MEASURED
from fedplcc.comparison.training import CellsShown, train
from fedplcc.runs.artifacts import EVALUATIONS, FILES
from fedplcc.simulation import worker_process
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.forked_workers import STARTED
from tests.support.federation.processes import eventually
from tests.support.federation.simulations import hashed, simulated, write_config

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]

RUN_S = 120.0
COMPARISON = """
[compare]
title = "Stripes"
seeds = [0, 1]
baseline = "average"

[datasets.stripes]
config = "run.toml"

[rows.average]
method = "fedavg"

[rows.prototypes]
method = "fedplcc"
set.training.local_steps = 5
"""
BROKEN = """
[datasets.broken]
config = "broken.toml"
seeds = [0]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison and its data; each cell takes about a second."""
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    values = tiny_federation.document(folder, run={"rounds": 2})
    write_config(folder / "run.toml", values)
    values["clients"] = {name: {"data": f"npz:{folder}/none.npz"} for name in tiny_federation.CLIENTS}
    write_config(folder / "broken.toml", values)
    (folder / "compare.toml").write_text(COMPARISON)
    (folder / "broken-compare.toml").write_text(COMPARISON + BROKEN)
    return folder


def words(folder: Path, out: Path, *arguments: object) -> list[str]:
    return ["compare", *map(str, ("--config", folder / "compare.toml", "--out", out, "--device", "cpu", *arguments))]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def compared(folder: Path, out: Path, *arguments: object) -> Result:
    """The command within this process; its workers are processes of their own all the same."""
    return CliRunner().invoke(app, words(folder, out, *arguments))


@contextmanager
def begun(arguments: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command at work, with what it says in a file; ended at the latest with the block."""
    command = [sys.executable, "-m", "fedplcc", *arguments]
    with (
        log.open("wb") as file,
        subprocess.Popen(command, cwd=folder, env=environment(), stdout=file, stderr=file) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def computed(out: Path) -> dict[str, bytes]:
    """Everything that is computed: all files but the one of seconds, and of the reports what stands above theirs."""
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    del files["measured.csv"]
    for name in ("report.md", "report.html"):
        above, heading, _below = files[name].rpartition(MEASURED.encode())
        assert heading
        files[name] = above
    return files


def is_in(log: Path, text: str) -> bool:
    return text in log.read_text(errors="replace")


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison that nothing disturbed, two cells at a time."""
    out = tmp_path_factory.mktemp("whole")
    done = compared(folder, out, "--jobs", 2, "--json")
    assert done.exit_code == ExitCode.OK, done.stderr
    summary = json.loads(done.stdout)
    assert summary["cells"] == {"whole": 4, "missing": 0}
    assert 0 <= summary["results"]["stripes"]["prototypes"]["last"]["worst"]["mean"] <= 1
    return out


def test_a_comparison_says_the_same_bytes_again_though_interrupted_and_one_at_a_time(
    folder: Path, whole: Path, tmp_path: Path
) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    with begun(words(folder, out), folder, log) as process:
        eventually(lambda: is_in(log, "average/seed-0: trained") or process.poll() is not None, "a first cell", RUN_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_S) == ExitCode.INTERRUPTED
    said = log.read_text()
    assert said.endswith("fedplcc: interrupted; what was committed is kept: the same command goes on from there\n")
    assert "Traceback" not in said
    assert re.search(r"[123] of 4 cells are in the report", said)

    done = compared(folder, out)
    assert done.exit_code == ExitCode.OK, done.stderr
    assert "average/seed-0: begins" not in done.stdout, "what is there is not trained again"
    assert computed(out) == computed(whole)


def test_cells_of_files_that_have_changed_since_are_said(folder: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    assert "have changed" not in compared(folder, tmp_path / "out", "--report-only").stderr
    os.utime(next((tmp_path / "out").rglob("average/seed-0/federation.json")), (0, 0))
    said = compared(folder, tmp_path / "out", "--report-only").stderr
    assert "files of clients have changed since cells began, or were linked: stripes/average/seed-0 are" in said


def test_a_cell_is_an_ordinary_simulation(folder: Path, whole: Path, tmp_path: Path) -> None:
    cell = whole / "stripes/average/seed-1"
    assert {*FILES, EVALUATIONS, "federation.json"} <= {entry.name for entry in cell.iterdir()}
    assert not (cell / "state").exists()
    simulated(tiny_federation.document(folder, "fedavg", run={"seed": 1, "rounds": 2}), tmp_path / "simulated")
    assert hashed(cell) == hashed(tmp_path / "simulated")


def cell_workers() -> list[int]:
    """The workers of this process that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            is_worker = b"fedplcc.comparison.training" in (stat.parent / "cmdline").read_bytes()
            if is_worker and state != "Z" and int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return found


class Killer(CellsShown):
    """Records training, and kills the worker of the first cell whenever one of its rounds commits, `times` at most."""

    def __init__(self, times: int) -> None:
        super().__init__(Console(file=io.StringIO()), total=1)
        self.times_left = times
        self.notes: list[str] = []
        self.ended: dict[str, str | None] = {}

    def begins(self, cell: Cell) -> None:
        assert cell.name not in self.ended

    def round(self, cell: Cell, number: int, mean: float | None) -> None:
        if self.times_left and not self.ended:
            self.times_left -= 1
            (worker,) = cell_workers()
            os.kill(worker, signal.SIGKILL)

    def note(self, cell: Cell, text: str) -> None:
        self.notes.append(f"{cell.name}: {text}")

    def ends(self, cell: Cell, failure: str | None) -> None:
        self.ended[cell.name] = failure


@pytest.mark.full
def test_a_cell_that_fails_and_a_worker_that_is_killed_stop_nothing_else(
    folder: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_started", STARTED)  # forks are children of another process
    path = folder / "broken-compare.toml"
    cells = plan(read_comparison(path), path, tmp_path, seeds=[0])
    chosen = [cell for cell in cells if cell.is_chosen and cell.name != "broken/average/seed-0"]
    killer = Killer(times=1)
    failures = train(chosen, killer, jobs=1, device="cpu", should_stop=lambda: False)
    assert list(killer.ended) == ["stripes/average/seed-0", "stripes/prototypes/seed-0", "broken/prototypes/seed-0"]
    assert {name: why for name, why in killer.ended.items() if why} == failures
    assert [*failures] == ["broken/prototypes/seed-0"]
    assert re.match(r"client left: .*none\.npz", failures["broken/prototypes/seed-0"])
    assert killer.notes[:1] == [
        "stripes/average/seed-0: its worker process was killed (SIGKILL); another one takes its place"
    ]
    assert hashed(tmp_path / "stripes/average/seed-0") == hashed(whole / "stripes/average/seed-0")
    assert not cell_workers()
