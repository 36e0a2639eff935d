"""The README is short, and its results are those of the report."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.comparison.published import published_tables
from tests.support import ROOT

RESULTS = ROOT / "experiments" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPUTED = ("report.md", "summary.csv", "differences.csv", "cells.csv")
"""Committed files that follow from the archived cells."""
MARKED_TABLE = re.compile(r"<!-- (digit5|office10) -->\n(.*?)<!-- /\1 -->", re.DOTALL)
"""A result table of the README: the data set's name, and the lines."""
ROWS = {"FedPLCC, clip": "clipped", "FedPLCC, grow in": "grown"}
"""Rows of the experiments whose names are not their labels in lower case."""


def test_the_readme_has_at_most_1300_words() -> None:
    assert len(README.split()) <= 1300


def test_the_results_of_the_readme_are_those_of_the_report() -> None:
    tables = dict(MARKED_TABLE.findall(README))
    assert tables, "the README shows no results between the marks of a data set"
    report = (RESULTS / "report.md").read_text(encoding="utf-8")
    for dataset, table in tables.items():
        ours, published = last_rounds(dataset), published_tables()[f"fedplcc/{dataset}"]
        lines = table.splitlines()[2:]
        assert lines, dataset
        for line in lines:
            label, mean, worst, printed = (cell.strip(" *") for cell in line.strip("|").split("|"))
            row = ROWS.get(label, label.lower())
            assert f"\n| {label} |" in report
            assert (mean, worst) == (ours[row, "mean"], ours[row, "worst"]), label
            known = published.of(label)
            assert printed == ("" if known is None else f"{known['mean']:.1f}"), label


def last_rounds(dataset: str) -> dict[tuple[str, str], str]:
    """Accuracies of the global model after the last round in percent, by row and column, as the README writes them."""
    with (RESULTS / "summary.csv").open(encoding="utf-8") as file:
        return {
            (line["row"], line["column"]): f"{100 * float(line['mean']):.1f}"
            + (f" ± {100 * float(line['std']):.1f}" if line["std"] else "")
            for line in csv.DictReader(file)
            if (line["dataset"], line["view"], line["model"]) == (dataset, "last", "global")
        }


def test_the_report_of_the_experiments_follows_from_their_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns(*COMPUTED))
    monkeypatch.chdir(ROOT)
    arguments = ["--config", "experiments/compare.toml", "--out", str(tmp_path / "results"), "--report-only"]
    ended = CliRunner().invoke(app, ["compare", *arguments])
    assert ended.exit_code == 0, ended.output
    for name in COMPUTED:
        assert (tmp_path / "results" / name).read_bytes() == (RESULTS / name).read_bytes(), name
