"""Signs of differences, published and ours: also of tables with another set-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.published.parts import PUBLISHED
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from tests.support.records.comparisons import COMPARISON, cells_of, findings_of, write_cell, write_comparison

DIGIT5 = ("mnist", "usps", "svhn", "synth", "mnistm")
BOTH = COMPARISON.replace('published = "fedplcc/digit5"', 'published = "fedplcc/digit5"\nextra.signs = "fpl/digits"')
BOTH = BOTH.replace('published = "FedPLCC"', 'published = ["FedPLCC", "MOON"]')
HEADING = "#### Signs of the published differences"


def accuracy_of(cell: Cell) -> dict[str, float]:
    """FedPLCC is above FedAvg with seeds 0 and 1 and below it with seed 2; on MNIST-M, which FPL has not, far above."""
    if cell.row == "average":
        return dict.fromkeys(DIGIT5, 0.5)
    return {**dict.fromkeys(DIGIT5, {0: 0.6, 1: 0.52, 2: 0.46}[cell.seed]), "mnistm": 0.9}


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    found = cells_of(write_comparison(tmp_path, BOTH), tmp_path / "out")
    for cell in found:
        write_cell(cell, [accuracy_of(cell)] * 3)
    return found


def signs(path: Path, cells: list[Cell]) -> str:
    return markdown(report(findings_of(path, cells), PUBLISHED)).partition(HEADING)[2].partition("![")[0]


def test_signs_stand_beside_the_published_ones_seed_by_seed(tmp_path: Path, cells: list[Cell]) -> None:
    said = signs(tmp_path / "compare.toml", cells)
    same, _, other = said.partition("**FPL, Digits:")
    assert same.startswith(
        "\n\n**FedPLCC, Digit-5: mean minus that of FedAvg in points, published and here (last round)**"
    )
    # FedPLCC: 80.092 - 60.394; here the mean over five domains: 16, 9.6 and 4.8 points.
    assert "| FedPLCC | +19.7 | +10.1 ± 5.6 | 3 of 3 |" in same
    assert "has the published sign in 1 of 1 row." in same
    # MOON: 76.50 - 80.14; here the mean over FPL's four domains: 10, 2 and -4 points.
    assert "| FedPLCC | -3.6 | +2.7 ± 7.0 | 1 of 3 |" in other
    assert "has the published sign in 0 of 1 row." in other
    assert "FPL, Digits: ours" not in said, "levels of another set-up are not set beside ours"


def test_a_row_without_a_domain_of_the_table_has_no_sign(tmp_path: Path, cells: list[Cell]) -> None:
    for cell in cells:
        write_cell(cell, [{"mnist": 0.5, "svhn": 0.4}] * 3)
    assert signs(tmp_path / "compare.toml", cells) == ""


def test_differences_are_of_seeds_that_both_rows_have(tmp_path: Path, cells: list[Cell]) -> None:
    (absent,) = (cell for cell in cells if cell.row == "average" and cell.seed == 2)
    (absent.folder / "run.json").unlink()
    assert "| FedPLCC | +19.7 | +12.8 ± 4.5 | 2 of 2 |" in signs(tmp_path / "compare.toml", cells)
