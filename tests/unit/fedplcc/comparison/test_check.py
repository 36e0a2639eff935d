"""`fedplcc config check` of a comparison's file: which kind a file is taken for, and every problem with its place."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path

import pytest

from fedplcc.command.files.config import kind_of
from fedplcc.comparison.check import check
from tests.support import ROOT, commands
from tests.support.records.comparisons import COMPARISON, RUN, cells_of, write_comparison

called = partial(commands.called, "config", "check")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COMPARISON, "comparison"),
        (RUN, "run"),
        ("[compare]\n", "comparison"),
        ("[dataset.x]\n[row.y]\n", "comparison"),
        ("[clints.x]\n[runs]\n", "run"),
        ("", "run"),
        ("[nothing]\n", "run"),
        ("[run]\n[rows.a]\n[data]\n", "run"),
        ("runs.most_round = 2\n", "policy"),
        ("privacy.epsilon = 3.0\n", "policy"),
        ('approve = "each"\n[run]\n[data]\n', "run"),
    ],
)
def test_a_file_is_taken_for_the_kind_that_most_of_its_tables_are_of(text: str, expected: str) -> None:
    assert kind_of(tomllib.loads(text)) == expected


def test_every_comparison_of_the_repository_is_right() -> None:
    names = (
        *("experiments/compare", "experiments/intra", "experiments/table5"),
        *(
            "experiments/choice-digit5",
            "experiments/choice-office10",
            "experiments/chosen",
            "experiments/office10-protocols",
        ),
        *("examples/pacs/compare", "examples/dermatoscopy/compare"),
    )
    files = [ROOT / f"{name}.toml" for name in names]
    for file in files:
        document = tomllib.loads(file.read_text())
        assert kind_of(document) == "comparison"
        checked = check(document, file)
        assert (checked.problems, bool(checked.cells)) == ((), True)


def test_what_is_checked_are_the_cells_that_the_command_would_train(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    checked = check(tomllib.loads(path.read_text()), path)
    assert [cell.name for cell in checked.cells] == [cell.name for cell in cells_of(path, tmp_path)]
    code, out, error = called(path)
    assert (code, error) == (0, "")
    assert out.splitlines() == [
        f"# {path} is a comparison: 9 cells; fedplcc compare --config {path} --dry-run says what it would train",
        "# data set digits: run.toml, 3 rows, seeds 0, 1, 2",
        "# row average: fedavg",
        "# row prototypes: fedplcc",
        "# row all: fedplcc, method.phi=1.0",
    ]
    document = json.loads(called(path, "--json")[1])
    assert (document["kind"], document["problems"], document["cells"]) == ("comparison", [], 9)
    assert document["datasets"] == {
        "digits": {"config": "run.toml", "seeds": [0, 1, 2], "rows": ["average", "prototypes", "all"]}
    }
    assert document["rows"]["all"]["set"] == {"method.phi": 1.0}


def test_the_problems_of_tables_and_of_the_files_that_they_name_come_in_one_go(tmp_path: Path) -> None:
    path = write_comparison(
        tmp_path,
        COMPARISON.replace('method = "fedavg"', 'method = "fedav"').replace('title = "A', 'titel = "A'),
        RUN.replace("rounds = 3", 'rounds = "many"').replace("[data]", "[data]\nimage_sise = 3"),
    )
    code, out, error = called(path)
    assert (code, out) == (2, "")
    assert error.splitlines() == [
        f"fedplcc: {path}: taken for the file of a comparison",
        f"fedplcc: {path}: unknown key 'compare.titel'; did you mean 'compare.title'?",
        f"fedplcc: {path}: rows.average.method: unknown method 'fedav'; did you mean 'fedavg'?",
        f'fedplcc: {path}: run.toml: run.rounds = "many": write a whole number',
        f"fedplcc: {path}: run.toml: unknown key 'data.image_sise'; did you mean 'data.image_size'?",
    ]


def test_a_change_of_a_row_that_does_not_fit_is_named_with_row_and_data_set(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON.replace('"method.phi"', '"method.phy"'))
    code, _, error = called(path)
    assert code == 2
    assert error.splitlines()[1:] == [
        f"fedplcc: {path}: row all on data set digits: unknown key 'method.phy'; did you mean 'method.phi'?"
    ]
    assert json.loads(called(path, "--json")[1])["problems"] == [
        "row all on data set digits: unknown key 'method.phy'; did you mean 'method.phi'?"
    ]


def test_the_data_of_each_data_set_are_read_when_asked_for(tmp_path: Path) -> None:
    path = write_comparison(tmp_path)
    code, out, error = called(path, "--data", "--json")
    assert code == 2
    problems = json.loads(out)["problems"]
    assert [problem.partition(": npz")[0][:30] for problem in problems] == [
        "datasets.digits: clients.mnist",
        "datasets.digits: clients.svhn:",
    ]
    assert error.splitlines()[:2] == ["mnist: reading its data", "svhn: reading its data"]
