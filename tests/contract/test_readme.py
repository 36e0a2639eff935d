"""What the README says of measurements is what the files of results say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
COMPUTED = ("report.md", "summary.csv", "evaluations.csv", "rounds.csv", "cells.csv")
"""Files of a report that follow from its cells."""


def test_the_rows_of_the_digit_5_table_are_rows_of_the_report() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.split("<!-- digit5 -->\n")[1].split("<!-- /digit5 -->")[0].splitlines()
    report = (RESULTS / "report.md").read_text(encoding="utf-8").splitlines()
    assert len(table) > 2
    assert [line for line in table if line not in report] == []


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
