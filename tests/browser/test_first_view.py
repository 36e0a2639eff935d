"""The console's benchmark works; how soon its pages show something, its results say (benchmarks/README.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.screens.browsing import chromium

pytestmark = pytest.mark.slow
FIRST_VIEW_S = 20.0
"""Generous: a busy machine is slow."""


needs_browser = pytest.mark.skipif(
    chromium() is None, reason="the console is measured in a browser: install Debian's package chromium"
)


@pytest.mark.full
@needs_browser
def test_the_benchmark_of_the_console_runs_and_writes_its_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.by_hand.console", "--quick", "--results", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stderr
    document = json.loads((tmp_path / "console.json").read_text())
    assert [row["page"] for row in document["rows"]] == ["overview", "run"]
    for row in document["rows"]:
        assert 0 < row["first view, warm (s)"] < FIRST_VIEW_S
        assert 0 < row["first view, cold (s)"] <= row["slowest, cold (s)"] < FIRST_VIEW_S
        assert row["main thread, cold (s)"] > 0
        assert row["elements"] > 50


@pytest.mark.full
@needs_browser
def test_the_benchmark_of_a_run_that_changes_runs_and_writes_its_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.by_hand.changing", "--quick", "--results", str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "changing.json").read_text())["rows"]
    assert [row["rounds"] for row in rows] == [4, 8, 12, 16]
    assert all(row["database a round (KiB)"] > 0 and row["run's own row (KiB)"] > 0 for row in rows)
    pages = json.loads((tmp_path / "changing-pages.json").read_text())["rows"]
    assert [row["page"] for row in pages] == ["overview", "run"]
