"""Cells with validation images: their best round in the report, and runs that ended early because it got no better."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.report.writing import csv_tables, summary
from tests.support import of_kind
from tests.support.records.comparisons import (
    ROUNDS,
    VALIDATED,
    cells_of,
    findings_of,
    lines_of,
    write_cell,
    write_comparison,
)

ON_VALIDATION = [{"mnist": 0.5, "svhn": 0.3}, {"mnist": 0.6, "svhn": 0.2}, {"mnist": 0.6, "svhn": 0.4}]
"""The third round is the best; on the test images the second is."""


def test_the_report_has_the_best_round_by_validation_beside_the_last_one(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path, run=VALIDATED), tmp_path / "out"
    for cell in cells_of(path, out):
        write_cell(cell, ROUNDS, validation=ON_VALIDATION)
    findings = findings_of(path, cells_of(path, out))
    text = markdown(report(findings))
    table = text.partition("**Best round by validation, global model, Digits**")[2].partition("\n\n**")[0]
    assert "| FedAvg | **70.0 ± 0.0** | **30.0 ± 0.0** | **50.0 ± 0.0** | **30.0 ± 0.0** | - | - | 3, 3, 3 |" in table
    best = text.partition("**Best round, global model, Digits**")[2].partition("\n\n**")[0]
    assert "| 2, 2, 2 |" in best
    lines = lines_of(csv_tables(findings)["summary.csv"])
    assert {line["view"] for line in lines} == {"last", "validated", "best", "last5", "last10"}
    assert {line["model"] for line in lines} == {"global", "global/validation"}
    assert summary(out, findings)["results"]["digits"]["average"]["validated"]["mean"]["mean"] == pytest.approx(0.5)


@pytest.mark.parametrize(("patience", "is_whole"), [(1, True), (2, False)])
def test_a_run_that_stopped_early_is_whole(patience: int, is_whole: bool, tmp_path: Path) -> None:
    run = VALIDATED.replace("rounds = 3", f"rounds = 30\npatience = {patience}")
    path = write_comparison(tmp_path, run=run)
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS, validation=[ON_VALIDATION[0], ON_VALIDATION[2], ON_VALIDATION[1]])
    assert len((cell.folder / "metrics.jsonl").read_text().splitlines()) == 3
    found = read_cell(cell)
    assert isinstance(found, CellResult if is_whole else MissingCell)
    if isinstance(found, MissingCell):
        assert "there is a run.json but not a line for each round in metrics.jsonl" in found.reason


def test_validation_images_of_some_clients_alone_choose_no_round(tmp_path: Path) -> None:
    """The line of such a round has no accuracy on them, and the reports have counts."""
    cell = cells_of(write_comparison(tmp_path), tmp_path / "out")[0]
    write_cell(cell, ROUNDS)
    reports = cell.folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    for line in lines:
        if line["domain"] == "mnist":
            line["counts"] += [{"set_name": "validation", "model": "global", "correct": [1, 2], "total": [4, 4]}]
    reports.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = of_kind(CellResult, read_cell(cell))
    assert not any("global/validation" in each.accuracy for each in found.rounds)


NOT_EVALUATED: dict[str, float] = {}


@pytest.mark.parametrize(
    ("validation", "is_whole"),
    [
        ([ON_VALIDATION[2], NOT_EVALUATED, ON_VALIDATION[0]], True),
        ([ON_VALIDATION[2], ON_VALIDATION[0], NOT_EVALUATED], False),
    ],
    ids=["evaluated", "not evaluated"],
)
def test_a_run_stops_early_only_in_a_round_that_is_evaluated(
    validation: Sequence[Mapping[str, float]], is_whole: bool, tmp_path: Path
) -> None:
    path = write_comparison(tmp_path, run=VALIDATED.replace("rounds = 3", "rounds = 30\npatience = 2"))
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS, validation=validation)
    assert isinstance(read_cell(cell), CellResult if is_whole else MissingCell)


def test_validation_images_of_every_model_are_read_from_its_reports(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, run=VALIDATED)
    cell = cells_of(path, tmp_path / "out")[0]
    write_cell(cell, ROUNDS, validation=ON_VALIDATION)
    reports = cell.folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    for line in lines:
        line["counts"] += [{"set_name": "validation", "model": "local", "correct": [1, 2], "total": [4, 4]}]
    reports.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = of_kind(CellResult, read_cell(cell))
    last = found.rounds[-1]
    assert last.accuracy["global/validation"] == ON_VALIDATION[-1]
    assert last.accuracy["local/validation"] == {"mnist": 3 / 8, "svhn": 3 / 8}
    assert last.accuracy["global"] == ROUNDS[-1], "never mixed with the test images"
