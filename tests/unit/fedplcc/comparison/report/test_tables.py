"""Tables: every evaluation once, the same bytes as ever, and texts that tell no order of additions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.command.exit_codes import ExitCode
from fedplcc.comparison.outcomes import Spread
from fedplcc.comparison.report.document import Table
from fedplcc.comparison.report.joining_table import joining_table
from fedplcc.comparison.report.tables import accuracy_value, gain_text
from fedplcc.comparison.report.writing import csv_tables
from fedplcc.comparison.round_values import RoundValues
from tests.support import ROOT
from tests.support.records.comparisons import TOTAL, cells_of, compare, fill, findings_of, lines_of

GOLDEN = ROOT / "tests" / "golden" / "comparison"
"""The computed tables of the tiny comparison, two of whose rows are trained."""


def test_every_evaluation_stands_in_one_line_with_its_counts(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out)
    findings = findings_of(path, cells_of(path, out))
    lines = lines_of(csv_tables(findings)["evaluations.csv"])
    assert len(lines) == 9 * 3 * 2 + 3 * 3 * 2  # cells x rounds x domains, and again with local models for one row
    assert len({tuple(line.values()) for line in lines}) == len(lines)
    for line in lines:
        assert int(line["total"]) == TOTAL
        assert float(line["accuracy"]) == pytest.approx(int(line["correct"]) / TOTAL)
    local = [line for line in lines if line["model"] == "local"]
    assert {line["row"] for line in local} == {"prototypes"}
    assert {line["method"] for line in lines} == {"fedavg", "fedplcc"}


def test_summaries_losses_and_cells_are_written_as_lines(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average", "prototypes"))
    findings = findings_of(path, cells_of(path, out), {"digits/all/seed-1": "it diverged, twice"})
    files = {name: lines_of(text) for name, text in csv_tables(findings).items()}
    best = [line for line in files["summary.csv"] if (line["row"], line["view"]) == ("average", "best")]
    assert [line["column"] for line in best] == ["mnist", "svhn", "mean", "worst"]
    assert float(best[0]["mean"]) == pytest.approx(0.81)
    assert float(best[0]["std"]) == pytest.approx(0.01)
    assert {line["seeds"] for line in best} == {"3"}
    assert {line["quantity"] for line in files["rounds.csv"]} == {
        "loss.ce",
        "prototypes.local",
        "prototypes.global",
        "num_examples",
    }
    assert {line["quantity"] for line in files["measured.csv"]} == {
        "bytes.sent",
        "bytes.received",
        "seconds.collecting",
        "seconds.total",
    }
    cells = {(line["row"], line["seed"]): line for line in files["cells.csv"]}
    assert len(cells) == 9
    assert cells["average", "0"]["state"] == "whole"
    assert cells["all", "1"]["reason"] == "it diverged, twice"
    assert cells["all", "0"]["settings"] == "method.phi=1.0"


def test_the_computed_values_of_a_tiny_comparison_are_the_same_bytes_as_ever(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill(path, out, rows=("average", "prototypes"))
    for _ in range(2):
        assert compare("--config", path, "--out", out, "--report-only")[0] == ExitCode.OK
        for golden in sorted(GOLDEN.glob("*.csv")):
            assert (out / golden.name).read_bytes() == golden.read_bytes(), golden.name
    assert {golden.name for golden in GOLDEN.iterdir()} == {
        *("evaluations.csv", "rounds.csv", "summary.csv", "differences.csv", "cells.csv")
    }


def test_what_additions_round_decides_no_table() -> None:
    """0.1 + 0.2 is no better than 0.3, and 1.55 points are rounded alike whatever computed them."""
    sums = Spread(0.1 + 0.2, None, 1)
    assert sums.mean > 0.3
    assert accuracy_value(sums, 0.3).is_best
    assert accuracy_value(Spread(0.3, None, 1), 0.1 + 0.2).is_best
    assert gain_text(Spread(0.015499999999999986, 0.0, 2)) == gain_text(Spread(0.0155, 0.0, 2)) == "+1.6 ± 0.0"


def test_what_joining_is_worth_is_told_of_the_clients_that_joined(path: Path, tmp_path: Path) -> None:
    fill(path, tmp_path / "out")
    findings = findings_of(path, cells_of(path, tmp_path / "out"))
    accuracy = {"global": {"mnist": 0.8, "svhn": 0.6, "left": 0.1}, "local": {"mnist": 0.9, "svhn": 0.7, "left": 0.2}}
    accuracy["alone"] = {"mnist": 0.5, "svhn": 0.8}
    rounds = [RoundValues(number=1, accuracy=accuracy, counts={}, computed={}, measured={})]
    joined = replace(findings, results=[replace(findings.cells("digits", "average")[0], rounds=rounds)])
    domains = {"mnist": "MNIST", "svhn": "SVHN", "left": "Left"}
    (table,) = joining_table(joined, "digits", ["average"], domains)
    assert isinstance(table, Table)
    assert [[value.text for value in line.values] for line in table.lines] == [
        ["80.0", "60.0", "-", "70.0", "60.0", "1"],
        ["90.0", "70.0", "-", "80.0", "70.0", "1"],
        ["50.0", "80.0", "-", "65.0", "50.0", "1"],
        ["+40.0", "-10.0", "-", "+15.0", "-10.0", "1"],
    ]
