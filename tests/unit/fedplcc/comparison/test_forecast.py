"""`fedplcc compare --dry-run`: the cells that would be trained, what is there, and where minutes come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.forecast import OF_NO_COST, SAMPLES_S, Forecast, TrialsLeft, forecast, trials_left
from fedplcc.simulation.sample import Sample
from shared.config.run import FederationFile, TrainingSection
from shared.errors import InvalidData
from tests.support.records.comparisons import (
    COMPARISON,
    ROUNDS,
    RUN,
    cells_of,
    compare,
    fill,
    write_cell,
    write_comparison,
)

CLIPPED = """
[rows.clipped]
method = "fedplcc"
set = { "training.clip_norm" = 40.0 }

[rows.longer]
method = "fedplcc"
set = { "run.rounds" = 4 }
"""


class Sampler:
    """Measures nothing: a method takes a minute for each of its letters."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now = 0.0

    def __call__(self, federation: FederationFile, *, device: str) -> Sample | None:
        assert device == "cpu"
        self.asked.append(federation.config.run.method)
        return Sample(60.0 * len(federation.config.run.method), 2)

    def foreseen(self, path: Path, out: Path, *, jobs: int = 1, **choice: Any) -> Forecast:
        cells = cells_of(path, out, **choice)
        return forecast(cells, {}, jobs=jobs, device="cpu", sample=self, clock=lambda: self.now)


def test_rows_that_take_equally_long_share_a_sample(tmp_path: Path) -> None:
    path, sampler = write_comparison(tmp_path, COMPARISON + CLIPPED), Sampler()
    found = sampler.foreseen(path, tmp_path / "out")
    assert [(row.name, row.seconds, row.num_to_train) for row in found.rows] == [
        ("digits/average", 360.0, 3),
        ("digits/prototypes", 420.0, 3),
        ("digits/all", 420.0, 3),
        ("digits/clipped", 420.0, 3),
        ("digits/longer", 420.0, 3),
    ]
    assert sampler.asked == ["fedavg", "fedplcc", "fedplcc"], "more rounds are another duration"
    assert found.seconds == 3 * (360 + 4 * 420)
    assert sampler.foreseen(path, tmp_path / "out", jobs=2).seconds == 3 * (360 + 4 * 420) / 2
    assert sampler.foreseen(path, tmp_path / "out", jobs=100).seconds == 420, "no cell is divided"


def test_finished_cells_say_how_long_the_others_of_their_row_take(tmp_path: Path) -> None:
    path, out, sampler = write_comparison(tmp_path), tmp_path / "out", Sampler()
    cells = cells_of(path, out)
    for cell, seconds in zip([cell for cell in cells if cell.row == "average"][:2], (10.0, 30.0), strict=True):
        write_cell(cell, ROUNDS, seconds=seconds)
    found = sampler.foreseen(path, out)
    average = found.rows[0]
    assert (average.seconds, average.source, average.num_to_train) == (60.0, "finished", 1)
    assert average.states == ["trained", "trained", "not trained"]
    assert "fedavg" not in sampler.asked


def test_chosen_cells_alone_are_counted(tmp_path: Path) -> None:
    path, sampler = write_comparison(tmp_path), Sampler()
    found = sampler.foreseen(path, tmp_path / "out", only=["average"], seeds=[1, 7])
    assert [[cell.name for cell in row.cells] for row in found.rows] == [
        ["digits/average/seed-1", "digits/average/seed-7"]
    ]
    assert found.as_json()["rows"][0]["cells"][1] == {
        "seed": 7,
        "state": "not trained",
        "folder": str(tmp_path / "out/digits/average/seed-7"),
    }


def test_samples_end_after_a_while_and_data_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)

    class Slow(Sampler):
        def __call__(self, federation: FederationFile, *, device: str) -> Sample | None:
            self.now += SAMPLES_S + 1
            raise InvalidData("client mnist: no file")

    found = Slow().foreseen(path, tmp_path / "out")
    assert [(row.source, row.note) for row in found.rows] == [
        ("unknown", "client mnist: no file"),
        ("unknown", f"samples end after {SAMPLES_S:.0f} s"),
        ("unknown", f"samples end after {SAMPLES_S:.0f} s"),
    ]
    assert found.seconds is None
    assert [*found.lines()][-1] == "9 cells are to be trained, 1 at a time: unknown"


SWEEP = """
[sweep]
choose = "validation"
rows = ["average", "all"]
grid = { "training.local_steps" = [5, 10, 20] }
"""


def test_the_trials_of_a_sweep_come_first_and_are_counted(tmp_path: Path) -> None:
    run = RUN.replace('classes = ["0", "1"]', 'classes = ["0", "1"]\nvalidation_every = 5')
    path, out, sampler = write_comparison(tmp_path, COMPARISON + SWEEP, run), tmp_path / "out", Sampler()
    comparison = read_comparison(path)
    three = TrialsLeft(3, (0,))
    assert trials_left(comparison, out) == {("digits", "average"): three, ("digits", "all"): three}
    assert trials_left(comparison, out, ["all"]) == {("digits", "all"): three}
    trained = out / "trials/digits/average_local_steps-5/seed-0"
    trained.mkdir(parents=True)
    (trained / "run.json").touch()
    trials = trials_left(comparison, out)
    assert trials == {("digits", "average"): TrialsLeft(2, (0,)), ("digits", "all"): three}
    found = forecast(cells_of(path, out), {}, jobs=1, device="cpu", trials=trials, sample=sampler)
    assert [row.num_trials for row in found.rows] == [2, 0, 3]
    assert [row.num_to_train for row in found.rows] == [2, 3, 2], "the cell of seed 0 is a chosen trial"
    assert found.seconds == (2 + 2) * 360 + 3 * 420 + (2 + 3) * 420
    assert [*found.lines()][1].endswith("by a sample here; 2 trials come first")
    assert [*found.lines()][-1].startswith("5 trials and 7 cells are to be trained, 1 at a time: about")
    code, text, _ = compare("--config", path, "--out", out, "--dry-run", "--json")
    assert (code, [row["trials"] for row in json.loads(text)["rows"]]) == (2, [2, 0, 3]), "their data are not there"
    assert [entry.name for entry in out.iterdir()] == ["trials"], "nothing is searched or written"


def test_what_costs_nothing_are_keys_of_the_training() -> None:
    assert set(OF_NO_COST) < set(TrainingSection.model_fields)


def everything(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_the_command_writes_nothing_and_trains_nothing_that_is_there(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out, seconds=20)
    damaged = out / "digits/all/seed-0/federation.json"
    damaged.write_text(damaged.read_text().replace('"rounds":3', '"rounds":9'))
    before = everything(tmp_path)
    code, text, said = compare("--config", path, "--out", out, "--dry-run")
    assert (code, said) == (0, "")
    lines = text.splitlines()
    assert lines[0] == f"{path}: 9 cells; results in {out}"
    assert [line.split() for line in lines[2:4]] == [
        ["digits/average", "fedavg", "0,1,2", "3", "0", "1.0", *["as", "its", "finished", "cells", "took"]],
        ["digits/prototypes", "fedplcc", "0,1,2", "3", "0", "1.0", *["as", "its", "finished", "cells", "took"]],
    ]
    assert lines[5].startswith(f"cannot be trained: digits/all/seed-0: {out}/digits/all/seed-0 holds a run of another")
    assert lines[6:] == ["0 cells are to be trained, 1 at a time: about 0.0 minutes", "nothing was written"]
    document = json.loads(compare("--config", path, "--out", out, "--dry-run", "--json")[1])
    assert (document["to_train"], document["rows"][0]["minutes_per_cell"]) == (0, 1.0)
    assert [cell["state"] for cell in document["rows"][2]["cells"]] == ["unusable", "trained", "trained"]
    assert everything(tmp_path) == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    code, text, said = compare("--config", path, "--out", tmp_path / "out", "--dry-run")
    assert (code, said.count("digits cannot be trained: client mnist: ")) == (2, 1)
    assert "not measured: client mnist: " in text, "its data are not there"
    assert not (tmp_path / "out").exists()
