"""`fedplcc compare --dry-run`: the cells that would be trained, and what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import read_comparison
from fedplcc.comparison.untrained import TrialsLeft, Untrained, trials_left, untrained
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


def foreseen(path: Path, out: Path, **choice: Any) -> Untrained:
    return untrained(cells_of(path, out, **choice), {})


def test_cells_that_are_there_are_not_to_be_trained(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    for cell in [cell for cell in cells_of(path, out) if cell.row == "average"][:2]:
        write_cell(cell, ROUNDS)
    found = foreseen(path, out)
    assert [(row.name, row.num_to_train) for row in found.rows] == [
        ("digits/average", 1),
        ("digits/prototypes", 3),
        ("digits/all", 3),
    ]
    assert found.rows[0].states == ["trained", "trained", "not trained"]
    assert [*found.lines()][-1] == "7 cells are to be trained"


def test_chosen_cells_alone_are_counted(tmp_path: Path) -> None:
    found = foreseen(write_comparison(tmp_path), tmp_path / "out", only=["average"], seeds=[1, 7])
    assert [[cell.name for cell in row.cells] for row in found.rows] == [
        ["digits/average/seed-1", "digits/average/seed-7"]
    ]
    assert found.as_json()["rows"][0]["cells"][1] == {
        "seed": 7,
        "state": "not trained",
        "folder": str(tmp_path / "out/digits/average/seed-7"),
    }


SWEEP = """
[sweep]
choose = "validation"
rows = ["average", "all"]
grid = { "training.local_steps" = [5, 10, 20] }
"""


def test_the_trials_of_a_sweep_come_first_and_are_counted(tmp_path: Path) -> None:
    run = RUN.replace('classes = ["0", "1"]', 'classes = ["0", "1"]\nvalidation_every = 5')
    path, out = write_comparison(tmp_path, COMPARISON + SWEEP, run), tmp_path / "out"
    comparison = read_comparison(path)
    three = TrialsLeft(3, (0,))
    assert trials_left(comparison, out) == {("digits", "average"): three, ("digits", "all"): three}
    assert trials_left(comparison, out, ["all"]) == {("digits", "all"): three}
    trained = out / "trials/digits/average_local_steps-5/seed-0"
    trained.mkdir(parents=True)
    (trained / "run.json").touch()
    trials = trials_left(comparison, out)
    assert trials == {("digits", "average"): TrialsLeft(2, (0,)), ("digits", "all"): three}
    found = untrained(cells_of(path, out), {}, trials=trials)
    assert [row.num_trials for row in found.rows] == [2, 0, 3]
    assert [row.num_to_train for row in found.rows] == [2, 3, 2], "the cell of seed 0 is a chosen trial"
    assert [*found.lines()][1].endswith("  2 trials come first")
    assert [*found.lines()][-1] == "5 trials and 7 cells are to be trained"
    code, text, _ = compare("--config", path, "--out", out, "--dry-run", "--json")
    assert (code, [row["trials"] for row in json.loads(text)["rows"]]) == (2, [2, 0, 3]), "their data are not there"
    assert [entry.name for entry in out.iterdir()] == ["trials"], "nothing is searched or written"


def everything(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


def test_the_command_writes_nothing_and_trains_nothing_that_is_there(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out)
    damaged = out / "digits/all/seed-0/federation.json"
    damaged.write_text(damaged.read_text().replace('"rounds":3', '"rounds":9'))
    before = everything(tmp_path)
    code, text, said = compare("--config", path, "--out", out, "--dry-run")
    assert (code, said) == (0, "")
    lines = text.splitlines()
    assert lines[0] == f"{path}: 9 cells; results in {out}"
    assert [line.split() for line in lines[2:4]] == [
        ["digits/average", "fedavg", "0,1,2", "3", "0"],
        ["digits/prototypes", "fedplcc", "0,1,2", "3", "0"],
    ]
    assert lines[5].startswith(f"cannot be trained: digits/all/seed-0: {out}/digits/all/seed-0 holds a run of another")
    assert lines[6:] == ["0 cells are to be trained", "nothing was written"]
    document = json.loads(compare("--config", path, "--out", out, "--dry-run", "--json")[1])
    assert document["to_train"] == 0
    assert [cell["state"] for cell in document["rows"][2]["cells"]] == ["unusable", "trained", "trained"]
    assert everything(tmp_path) == before


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    code, _, said = compare("--config", path, "--out", tmp_path / "out", "--dry-run")
    assert (code, said.count("digits cannot be trained: client mnist: ")) == (2, 1), "its data are not there"
    assert not (tmp_path / "out").exists()
