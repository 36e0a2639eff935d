"""What a comparison's file names of published numbers, and the program that writes a report with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.published.names import check
from fedplcc.comparison.file import read_comparison
from fedplcc.shared.errors import InvalidConfig
from tests.support import ROOT
from tests.support.records.comparisons import COMPARISON, fill, write_comparison


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"fedplcc/digit5"', '"fedplcc/digit"', "datasets.digits.extra: unknown table of published numbers"),
        ('published = "FedPLCC"', 'published = "FedPLC"', "rows.prototypes.extra: unknown published method 'FedPLC'"),
    ],
)
def test_a_name_that_is_not_there_is_refused(old: str, new: str, problem: str, tmp_path: Path) -> None:
    assert old in COMPARISON
    comparison = read_comparison(write_comparison(tmp_path, COMPARISON.replace(old, new, 1)))
    with pytest.raises(InvalidConfig, match=problem):
        check(comparison)


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "experiments").glob("*.toml")))
def test_the_experiments_name_what_is_there(file: str) -> None:
    text = (ROOT / "experiments" / file).read_text()
    if "[compare]" in text:
        check(read_comparison(ROOT / "experiments" / file))


def test_the_program_writes_the_report_with_published_numbers(tmp_path: Path) -> None:
    path, out = write_comparison(tmp_path), tmp_path / "out"
    fill(path, out)
    command = [sys.executable, "-m", "experiments.published", str(path), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "#### Beside the published numbers" in (out / "report.md").read_text()
