"""Wrong points of a sweep: named by the key of `[sweep]`, once for a row, by each command and before any folder."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.comparison.check import check
from tests.support.records.comparisons import COMPARISON, VALIDATED, compare, write_comparison

GRID = """
[sweep]
choose = "validation"
rows = ["average", "all"]
"""
STUDY = """
[sweep]
trials = 4
rows = ["average", "all"]
"""
UNKNOWN = "unknown key 'training.lerning_rate'; did you mean 'training.learning_rate'?"
TOO_HIGH = "training.learning_rate = 100: it must be at most 10"


def problems(folder: Path, sweep: str, run: str = VALIDATED, more: str = "") -> list[str]:
    path = write_comparison(folder, COMPARISON + more + sweep, run)
    return [*check(tomllib.loads(path.read_text()), path).problems]


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        (
            GRID + 'grid = { "training.lerning_rate" = [0.01, 0.1], "training.local_steps" = [5, 10] }',
            [f"sweep.grid: row average: {UNKNOWN}", f"sweep.grid: row all: {UNKNOWN}"],
        ),
        (
            GRID + 'grid = { "training.learning_rate" = [0.01, 100] }',
            [f"sweep.grid: row average: {TOO_HIGH}", f"sweep.grid: row all: {TOO_HIGH}"],
        ),
        (
            GRID + 'grid = { "training.local_steps" = [5] }\ngrid_for.all = { "training.learning_rate" = [0.01, 100] }',
            [f"sweep.grid_for.all: row all: {TOO_HIGH}"],
        ),
        (
            GRID + 'grid = { "method.phi" = [0.5, 1.0] }',
            ["sweep.grid: row average: fedavg has no key 'method.phi'; put it in sweep.grid_for.all"],
        ),
        (
            STUDY + 'ranges."method.phi" = { low = 0.5, high = 1.0 }\n'
            'ranges_for.average."training.learning_rate" = { low = 0.1, high = 100 }',
            [
                "sweep.ranges: row average: fedavg has no key 'method.phi'; put it in sweep.ranges_for.all",
                f"sweep.ranges_for.average: row average: {TOO_HIGH}",
            ],
        ),
        (GRID + 'grid = { "training.learning_rate" = [0.01, 0.1] }', []),
    ],
    ids=["unknown", "value", "of_one_row", "of_another_method", "study", "right"],
)
def test_each_problem_is_named_once_for_a_row_with_its_key(sweep: str, expected: list[str], tmp_path: Path) -> None:
    assert problems(tmp_path, sweep) == expected


def test_a_problem_on_one_of_several_data_sets_names_it(tmp_path: Path) -> None:
    more = '[datasets.others]\nconfig = "run.toml"\nset = { "training.local_epochs" = 1 }\n'
    of_all = GRID.replace('["average", "all"]', '"all"')
    assert problems(tmp_path, of_all + 'grid = { "training.lerning_rate" = [0.1] }', more=more) == [
        f"sweep.grid: row all: {UNKNOWN}"
    ]
    assert problems(tmp_path, of_all + 'grid = { "training.local_steps" = [5, 10] }', more=more) == [
        "sweep.grid: row all on data set others: training: set exactly one of 'local_steps' and 'local_epochs'"
    ]


@pytest.mark.parametrize("how", [("--dry-run",), ()])
def test_the_command_refuses_them_before_it_makes_a_folder(how: tuple[str, ...], tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON + GRID + 'grid = { "training.lerning_rate" = [0.01, 0.1] }', VALIDATED)
    code, _, said = compare("--config", path, "--out", tmp_path / "out", *how)
    assert (code, said) == (2, f"fedplcc: sweep.grid: row average: {UNKNOWN}; sweep.grid: row all: {UNKNOWN}\n")
    assert not (tmp_path / "out").exists()


def test_a_right_sweep_is_printed_with_its_points_and_what_chooses(tmp_path: Path) -> None:
    sweep = GRID + 'grid = { "training.local_steps" = [5, 10, 20] }\ngrid_for.all = { "method.lambda1" = [1.0, 2.0] }'
    path = write_comparison(tmp_path, COMPARISON + sweep, VALIDATED)
    done = CliRunner().invoke(app, ["config", "check", str(path)])
    chosen_by = "mean over domains on validation images, mean of the last 10 rounds"
    assert (done.exit_code, done.stdout.splitlines()[2]) == (
        0,
        f"# sweep: 3 points of average, 6 points of all; chosen by {chosen_by}",
    )
    document = json.loads(CliRunner().invoke(app, ["config", "check", str(path), "--json"]).stdout)
    assert document["sweep"] == {"points": {"average": 3, "all": 6}, "chosen_by": chosen_by}


def test_a_file_is_checked_without_optuna_and_a_dry_run_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    study = STUDY + 'ranges."training.learning_rate" = { low = 0.001, high = 0.1 }'
    assert problems(tmp_path, study) == []
    code, _, said = compare("--config", tmp_path / "compare.toml", "--out", tmp_path / "out", "--dry-run")
    assert (code, "a study needs Optuna" in said) == (2, True)
