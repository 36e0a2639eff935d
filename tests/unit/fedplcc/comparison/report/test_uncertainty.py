"""Uncertainty in the report: intervals, tests against the baselines, and what few seeds cannot say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import permutation_test

from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from fedplcc.comparison.report.uncertainty import uncertainty_of
from fedplcc.comparison.report.writing import csv_tables
from tests.support.records.comparisons import (
    COMPARISON,
    ROUNDS,
    cells_of,
    fill,
    findings_of,
    lines_of,
    write_cell,
    write_comparison,
)


def test_a_table_has_intervals_of_each_row_and_tests_against_the_baseline(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out)
    text = markdown(report(findings_of(path, cells_of(path, out))))
    table = text.partition("**Uncertainty, last round, global model, Digits**")[2].partition("\n\n**")[0]
    assert (
        "|  | mean \\[runs\\] | IQM \\[domains\\] | mean vs FedAvg \\[runs\\] | p (runs) | p (domains) | seeds |"
        in table
    )
    assert "| FedAvg | 51.0 \\[50.0, 52.0\\] | 51.0 " in table
    assert "| +5.0 \\[+5.0, +5.0\\] | 0.250 | 0.031 | 3 |" in table
    notes = text.partition("How to read the tables of uncertainty:")[2].partition("##")[0]
    assert "Of 3 runs, \\[runs\\] is no more than the range" in notes
    assert "With 3 seeds p (runs) cannot be below 0.25, however large a difference is: no difference here is" in notes


def test_a_single_seed_has_no_uncertainty_to_show(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON.replace("[0, 1, 2]", "[0]"))
    fill(path, tmp_path / "out")
    findings = findings_of(path, cells_of(path, tmp_path / "out"))
    assert "ncertainty" not in markdown(report(findings))
    lines = lines_of(csv_tables(findings)["uncertainty.csv"])
    assert {line["runs_low"] for line in lines} == {""}


def test_only_seeds_and_domains_of_both_rows_are_compared_and_the_share_is_scipys(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    cells = cells_of(path, out)
    rng = np.random.default_rng(5)
    for cell in cells:
        accuracy: dict[str, float | None] = {
            domain: int(rng.integers(0, 1001)) / 1000 for domain in ("mnist", "svhn", "usps")
        }
        if (cell.row, cell.seed) == ("average", 1):
            accuracy["usps"] = None
        if (cell.row, cell.seed) != ("prototypes", 2):
            write_cell(cell, [*ROUNDS[:2], accuracy])
    findings = findings_of(path, cells)
    ours, theirs = findings.cells("digits", "prototypes"), findings.cells("digits", "average")
    found = uncertainty_of(ours, "last", theirs)
    assert found is not None
    assert (found.num_seeds, found.num_domains) == (2, 2)
    values = [
        np.array([[each.rounds[-1].accuracy["global"][domain] for domain in ("mnist", "svhn")] for each in row], float)
        for row in (ours, theirs[:2])
    ]
    expected = permutation_test(
        ((values[0] - values[1]).ravel(),), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert found.pairs is not None
    assert found.pairs.p == pytest.approx(expected.pvalue)
    assert found.estimates["mean"].value == pytest.approx((values[0] - values[1]).mean())
    (line,) = (
        line
        for line in lines_of(csv_tables(findings)["uncertainty.csv"])
        if (line["row"], line["baseline"], line["statistic"]) == ("prototypes", "average", "mean")
    )
    assert float(line["p_domains"]) == found.pairs.p
    assert (line["p_runs"], line["least_p_runs"], line["seeds"], line["domains"]) == (line["p_runs"], "0.5", "2", "2")
    assert uncertainty_of(ours, "validated") is None
    assert uncertainty_of(ours, "last", []) is None


def test_more_seeds_may_be_significant_and_the_note_goes(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, COMPARISON.replace("[0, 1, 2]", "[0, 1, 2, 3, 4, 5]"))
    fill(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out"))))
    assert "cannot be below" not in text
    assert "no more than the range" not in text
    assert "| +5.0 \\[+5.0, +5.0\\] | 0.031 | <0.001 | 6 |".replace("<", "\\<") in text
