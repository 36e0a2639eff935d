"""Groups that choose: rows are ranked on validation images, and nothing that is written has a test number of them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedplcc.comparison.file import parse_comparison, problems_of, read_comparison
from fedplcc.comparison.plan import Cell, cell_problems
from fedplcc.comparison.reading import CellResult, read_cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.training import CellsShown, _order
from fedplcc.shared.config.sections import read_document
from fedplcc.simulation.messages import CommittedRound
from tests.support.records.comparisons import (
    RUN,
    VALIDATED,
    cells_of,
    compare,
    findings_of,
    write_cell,
    write_comparison,
)

CHOOSING = """
[compare]
name = "choice"
seeds = [100, 101]
baseline = "average"

[datasets.digits]
config = "run.toml"
label = "Digits"

[rows.average]
method = "fedavg"
label = "FedAvg"

[rows.plain]
method = "fedplcc"
label = "Plain"
group = "candidates"

[rows.wide]
method = "fedplcc"
label = "Wide"
group = "candidates"
set = { "method.phi" = 1.0 }

[rows.even]
method = "fedplcc"
label = "Even"
group = "candidates"
set = { "method.unit_weights" = true }

[groups.candidates]
title = "Candidates"
choose = "validation"
"""
OPEN = CHOOSING.replace('choose = "validation"', "")
"""The same without a choice."""
WIDE = 'label = "Wide"\n'
TESTED = {"mnist": 0.7314, "svhn": 0.6482}
"""Accuracies on test images that no validation image has, of 731 and 648 correct predictions, 366 and 324 of a class."""
TRACES = (
    r"0\.7314",
    r"0\.6482",
    r"0\.6898",
    r"73\.1",
    r"64\.8",
    r"69\.0",
    r"\b731\b",
    r"\b648\b",
    r"\b36[56]\b",
    r"\b324\b",
    "0.4321",
)
"""How they would stand in a file: by domain, as mean, as counts of classes, and as what stages made the model forget."""
VALIDATION: Mapping[str, Mapping[str, float]] = {
    "plain": {"mnist": 0.9, "svhn": 0.3},  # mean 0.6, worst 0.3: 0.45
    "wide": {"mnist": 0.6, "svhn": 0.5},  # mean 0.55, worst 0.5: 0.525
    "even": {"mnist": 0.5, "svhn": 0.5},  # 0.5
}


def trained(path: Path, out: Path, *, without: str = "") -> list[Cell]:
    """All cells as files, but one; on test images the row that is worst on validation images is best."""
    cells = cells_of(path, out)
    for cell in cells:
        if cell.name == without:
            continue
        if cell.row == "average":
            write_cell(cell, [{"mnist": 0.2, "svhn": 0.1}] * 3)
            continue
        write_cell(cell, [TESTED] * 3, validation=[VALIDATION[cell.row]] * 3)
        metrics = cell.folder / "metrics.jsonl"
        lines = [{**json.loads(line), "forgetting": 0.4321, "pass": 1} for line in metrics.read_text().splitlines()]
        metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return cells


def everything(out: Path) -> dict[str, str]:
    """The text of every file that the command wrote, by name; cells have folders of their own."""
    return {path.name: path.read_text() for path in out.iterdir() if path.is_file()}


@pytest.mark.parametrize("is_open", [False, True], ids=["choosing", "as a control, not choosing"])
def test_no_file_of_the_report_has_a_test_number_of_the_rows(is_open: bool, tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, OPEN if is_open else CHOOSING, VALIDATED), tmp_path / "out"
    trained(path, out)
    code, said, trouble = compare("--config", path, "--out", out, "--report-only", "--json")
    assert (code, trouble.count("cells are in the report")) == (0, 1)
    files = {**everything(out), "stdout": said, "stderr": trouble}
    assert {"report.md", "report.html", "evaluations.csv", "classes.csv", "rounds.csv", "summary.csv"} <= {*files}
    # Numbers of drawings are places on the page: what a drawing says in words is all that it can tell.
    found = {
        name: [
            trace for trace in TRACES if re.search(trace, re.sub(r"<(path|use|rect|svg|g|text)\b[^>]*>", "<>", text))
        ]
        for name, text in files.items()
    }
    if is_open:
        assert {trace for traces in found.values() for trace in traces} == {*TRACES}, "the traces are the right ones"
    else:
        assert not any(found.values()), found
        assert not any("candidates" in name for name in files), "no curve and no map of the group"
    assert "0.2" in files["evaluations.csv"], "the other rows have theirs"


def test_rows_are_ranked_by_the_mean_of_mean_and_worst_domain(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, CHOOSING, VALIDATED), tmp_path / "out"
    findings = findings_of(path, trained(path, out))
    said = markdown(report(findings)).partition("### Digits: Candidates")[2].partition("\n## ")[0]
    assert "mean of the last 10 rounds, global model, validation images, Digits**" in said
    assert "| Plain | 3 | 45.0 ± 0.0 | 60.0 ± 0.0 | 30.0 ± 0.0 | 2 of 2 |" in said
    assert "| Wide | **1** | 52.5 ± 0.0 | 55.0 ± 0.0 | 50.0 ± 0.0 | 2 of 2 |" in said
    assert "| Even | 2 | 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | 2 of 2 |" in said
    assert "The best of 3 rows: Wide." in said
    assert "| Wide | 60.0 ± 0.0 | 50.0 ± 0.0 | 55.0 ± 0.0 | 50.0 ± 0.0 |" in said, "by domain"
    _, told, _ = compare("--config", path, "--out", out, "--report-only", "--json")
    rows = json.loads(told)["results"]["digits"]
    assert rows["wide"] == {"seeds": [100, 101], "validation": {"rank": 1, "mean": pytest.approx(0.525), "std": 0.0}}
    assert rows["average"]["last"]["mean"]["mean"] == pytest.approx(0.15)


def test_a_row_without_all_seeds_of_the_file_has_no_rank_and_other_seeds_do_not_count(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, CHOOSING, VALIDATED), tmp_path / "out"
    cells = trained(path, out, without="digits/wide/seed-101")
    (extra,) = (cell for cell in cells_of(path, out, seeds=[7]) if cell.row == "even" and cell.seed == 7)
    write_cell(extra, [TESTED] * 3, validation=[{"mnist": 0.1, "svhn": 0.1}] * 3)
    said = markdown(report(findings_of(path, [*cells, extra])))
    assert "| Wide | - | 52.5 | 55.0 | 50.0 | 1 of 2 |" in said
    assert "| Even | **1** | 50.0 ± 0.0 | 50.0 ± 0.0 | 50.0 ± 0.0 | 2 of 2 |" in said
    assert "Best so far: Even. Only 2 of 3 rows have all seeds of the file; the others have no rank." in said


def test_a_group_is_of_one_model_and_a_row_without_it_has_no_rank(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, CHOOSING, VALIDATED), tmp_path / "out"
    for cell in trained(path, out):
        if cell.row == "wide":
            write_cell(cell, [TESTED] * 3, validation=[VALIDATION["wide"]] * 3, has_global=False)
    said = markdown(report(findings_of(path, cells_of(path, out))))
    assert "| Wide | - | - | - | - | 0 of 2 |" in said
    assert "Best so far: Even. Only 2 of 3 rows" in said
    path.write_text(CHOOSING.replace('choose = "validation"', 'choose = "validation"\nmodel = "local"'))
    said = markdown(report(findings_of(path, cells_of(path, out))))
    assert "mean of the last 10 rounds, local models, each on its own domain, validation images, Digits**" in said
    assert "| Wide | **1** | 52.5 ± 0.0 |" in said
    assert "| Even | - | - | - | - | 0 of 2 |" in said


def test_progress_and_trackers_are_told_no_test_number(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, CHOOSING, VALIDATED), tmp_path / "out"
    by_row = {cell.row: cell for cell in trained(path, out)}
    console = Console(file=io.StringIO(), width=200)
    for row, hides in (("average", False), ("wide", True)):
        cell = by_row[row]
        with CellsShown(console, total=1) as shown:
            order = _order(cell, shown, "cpu", ("csv:somewhere",))
            assert order.message == (cell, "cpu", () if hides else ("csv:somewhere",))
            order.on_begin()
            order.on_report(CommittedRound(1, 0.25))
            shown.ends(cell, None)
        said = console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
        assert f"mean accuracy {'on validation images ' if hides else ''}25.0%" in said
        found = read_cell(cell)
        assert isinstance(found, CellResult)
        assert ("global" in found.rounds[-1].accuracy) is not hides
    assert replace(by_row["average"], is_trial=True).hides_test, "a sweep's trials are told of so too"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f'{WIDE}group = "candidates"', f'{WIDE}group = ["candidates", "methods"]', "leave out 'methods', which would"),
        ('baseline = "average"', 'baseline = "wide"', "compare.baseline: row 'wide': group 'candidates' chooses on"),
        (
            f'{WIDE}group = "candidates"',
            f'{WIDE}group = "candidate"',
            "rows.wide.group: unknown group 'candidate'; did you mean 'candidates'?",
        ),
        (f'{WIDE}group = "candidates"', f'{WIDE}group = ["methods", "extra"]', "unknown group 'extra'; known: candidates"),
        ('choose = "validation"', 'view = "last5"', "groups.candidates.view: only a group that chooses has one"),
        ('choose = "validation"', 'choose = "test"', "groups.candidates.choose = \"test\": it must be 'validation'"),
    ],
)  # fmt: skip
def test_what_would_show_a_test_number_is_refused_by_name(old: str, new: str, problem: str, tmp_path: Path) -> None:
    path = write_comparison(tmp_path, CHOOSING.replace(old, new), VALIDATED)
    assert [each for each in problems_of(read_document(path)) if problem in each], problems_of(read_document(path))


def test_a_choice_without_validation_images_is_refused(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, CHOOSING)
    (problem, *_) = cell_problems(read_comparison(path), path)
    assert problem == (
        "row plain on data set digits: its group chooses on validation images, and client mnist has none; set "
        "data.validation_every in its file, or validation_per_class for each client"
    )
    code, _, error = compare("--config", path, "--out", tmp_path / "out", "--dry-run")
    assert (code, "client mnist has none" in error) == (2, True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"data.validation_every": 2},
            "data.validation_every is 5 in row plain and 2 in row wide; the images that choose must be the same for all, so "
            "give both rows the same value, or one of them another group",
        ),
        (
            {"clients.svhn.validation_per_class": 4},
            "clients.svhn.validation_per_class is not set in row plain and 4 in row",
        ),
        ({"clients.svhn.data": "npz:other.npz"}, "clients.svhn.data is "),
        (
            {"evaluation.every": 30},
            "evaluation.every is 1 in row plain and 30 in row wide; the rounds that choose must be",
        ),
        ({"evaluation.last": 1}, "evaluation.last is 10 in row plain and 1 in row wide"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_rows_that_other_images_or_rounds_would_choose_are_refused(
    settings: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    path = write_comparison(tmp_path, CHOOSING, VALIDATED)
    document: dict[str, Any] = read_document(path)
    document["rows"]["wide"]["set"] = settings
    (found,) = cell_problems(parse_comparison(document), path)
    assert found.startswith(f"group candidates on data set digits: {problem}")
    document["datasets"]["digits"]["set"] = settings
    assert cell_problems(parse_comparison(document), path) == [], "the same for all rows"
    del document["datasets"]["digits"]["set"]
    document["rows"]["wide"]["group"] = "alone"
    document["groups"]["alone"] = {"choose": "validation"}
    assert cell_problems(parse_comparison(document), path) == [], "a group of its own"


PARTITION = """
[partition]
kind = "dirichlet"
data = "npz:mnist.npz"
num_clients = 2
alpha = 0.5
validation_per_class = 4
"""


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (
            "partition.validation_per_class",
            9,
            "clients.client-00.validation_per_class is 4 in row plain and 9 in row wide",
        ),
        ("partition.alpha", 5.0, "clients.client-00.data is "),
        ("partition.samples_per_class", 50, None),
        ("evaluation.every", 1, None),
        ("evaluation.batch_norm", "site", None),
        ("run.rounds", 9, None),
    ],
)
def test_parts_of_one_data_set_choose_too_and_what_is_only_trained_differently_is_ranked(
    key: str, value: Any, named: str | None, tmp_path: Path
) -> None:
    path = write_comparison(tmp_path, CHOOSING, RUN.partition("[clients.mnist]")[0] + PARTITION)
    document: dict[str, Any] = read_document(path)
    document["rows"]["wide"]["set"] = {key: value}
    found = cell_problems(parse_comparison(document), path)
    assert found == [] if named is None else named in found[0], found


def test_clients_own_numbers_of_validation_images_are_enough(tmp_path: Path) -> None:
    each = {f"clients.{name}.validation_per_class": 4 for name in ("mnist", "svhn")}
    document: dict[str, Any] = read_document(write_comparison(tmp_path, CHOOSING))
    document["datasets"]["digits"]["set"] = each
    assert cell_problems(parse_comparison(document), tmp_path / "compare.toml") == []


def test_groups_need_no_table_where_none_chooses(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, OPEN.replace(f'{WIDE}group = "candidates"', f'{WIDE}group = "extra"'), VALIDATED)
    assert problems_of(read_document(path)) == []
