"""The README is short, and its results are those of the report."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.comparison.published import published_tables
from tests.support import ROOT

RESULTS = ROOT / "experiments" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPUTED = ("report.md", "summary.csv", "evaluations.csv", "rounds.csv", "cells.csv")
"""Files of a report that follow from its cells."""


def test_the_readme_has_at_most_1300_words() -> None:
    assert len(README.split()) <= 1300


def test_the_results_of_the_readme_are_those_of_the_report() -> None:
    table = README.split("<!-- digit5 -->\n")[1].split("<!-- /digit5 -->")[0].splitlines()[2:]
    report = (RESULTS / "report.md").read_text(encoding="utf-8")
    with (RESULTS / "summary.csv").open(encoding="utf-8") as file:
        ours = {
            (line["row"], line["column"]): f"{100 * float(line['mean']):.1f} ± {100 * float(line['std']):.1f}"
            for line in csv.DictReader(file)
            if (line["dataset"], line["view"], line["model"]) == ("digit5", "last", "global")
            and line["column"] in ("mean", "worst")
            and line["std"]
        }
    rows = {"FedPLCC, clip": "clipped"}
    published = published_tables()["fedplcc/digit5"]
    assert len(table) == 9
    for line in table:
        label, mean, worst, printed = (cell.strip(" *") for cell in line.strip("|").split("|"))
        row = rows.get(label, label.lower())
        assert f"\n| {label} |" in report
        assert (mean, worst) == (ours[row, "mean"], ours[row, "worst"]), label
        known = published.of(label)
        assert printed == ("" if known is None else f"{known['mean']:.1f}"), label


def test_the_report_of_the_experiments_follows_from_their_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns(*COMPUTED))
    monkeypatch.chdir(ROOT)
    arguments = ["--config", "experiments/compare.toml", "--out", str(tmp_path / "results"), "--report-only"]
    ended = CliRunner().invoke(app, ["compare", *arguments])
    assert ended.exit_code == 0, ended.output
    for name in COMPUTED:
        assert (tmp_path / "results" / name).read_bytes() == (RESULTS / name).read_bytes(), name
