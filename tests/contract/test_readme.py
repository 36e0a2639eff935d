"""The README is short, and its results are those of the report."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.comparison.published.accuracies import published_tables
from tests.support import ROOT

EXPERIMENTS = ROOT / "experiments"
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPUTED = {
    "results": ("report.md", "summary.csv", "differences.csv", "cells.csv"),
    "chosen": ("report.md", "summary.csv"),
    "choice-digit5": ("report.md",),
    "choice-office10": ("report.md",),
}
"""Committed files that follow from the archived cells, by the folder of a comparison."""
FILES = {
    "results": "compare.toml",
    "chosen": "chosen.toml",
    "choice-digit5": "choice-digit5.toml",
    "choice-office10": "choice-office10.toml",
}
MARKED_TABLE = re.compile(r"<!-- (digit5|office10) -->\n(.*?)<!-- /\1 -->", re.DOTALL)
"""A result table of the README: the data set's name, and the lines."""
ROWS = {"FedPLCC, clip": "clipped", "FedPLCC, grow in": "grown"}
"""Rows of the experiments whose names are not their labels in lower case."""
CHOSEN = {"FedPLCC, chosen": "chosen"}
"""Rows of the comparison of what was chosen."""


def test_the_readme_has_at_most_1300_words() -> None:
    assert len(README.split()) <= 1300


def test_the_results_of_the_readme_are_those_of_the_report() -> None:
    tables = dict(MARKED_TABLE.findall(README))
    assert tables, "the README shows no results between the marks of a data set"
    for dataset, table in tables.items():
        published = published_tables()[f"fedplcc/{dataset}"]
        lines = table.splitlines()[2:]
        assert lines, dataset
        for line in lines:
            label, mean, worst, printed = (cell.strip(" *") for cell in line.strip("|").split("|"))
            folder = "chosen" if label in CHOSEN else "results"
            row, ours = {**ROWS, **CHOSEN}.get(label, label.lower()), last_rounds(dataset, folder)
            assert f"\n| {label} |" in (EXPERIMENTS / folder / "report.md").read_text(encoding="utf-8")
            assert (mean, worst) == (ours[row, "mean"], ours[row, "worst"]), label
            known = published.of(label)
            assert printed == ("" if known is None else f"{known['mean']:.1f}"), label


def last_rounds(dataset: str, folder: str) -> dict[tuple[str, str], str]:
    """Accuracies of the global model after the last round in percent, by row and column, as the README writes them."""
    with (EXPERIMENTS / folder / "summary.csv").open(encoding="utf-8") as file:
        return {
            (line["row"], line["column"]): f"{100 * float(line['mean']):.1f}"
            + (f" ± {100 * float(line['std']):.1f}" if line["std"] else "")
            for line in csv.DictReader(file)
            if (line["dataset"], line["view"], line["model"]) == (dataset, "last", "global")
        }


@pytest.mark.parametrize("folder", COMPUTED)
def test_the_report_of_the_experiments_follows_from_their_archives(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / folder
    copied.mkdir()
    for archive in (EXPERIMENTS / folder).glob("*.zip"):
        shutil.copy(archive, copied)
    monkeypatch.chdir(ROOT)
    arguments = ["--config", f"experiments/{FILES[folder]}", "--out", str(copied), "--report-only"]
    ended = CliRunner().invoke(app, ["compare", *arguments])
    assert ended.exit_code == 0, ended.output
    for name in COMPUTED[folder]:
        assert (copied / name).read_bytes() == (EXPERIMENTS / folder / name).read_bytes(), name
