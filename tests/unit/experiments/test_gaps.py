"""What explains a difference from a published mean: protocol, reported round, or nothing known."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from experiments.published.gaps import Gap
from experiments.published.parts import PUBLISHED
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from tests.support.records.comparisons import cells_of, findings_of, write_cell, write_comparison

TWO_PROTOCOLS = """
[compare]
name = "protocols"
seeds = [0]

[datasets.few]
config = "run.toml"
label = "Few images"
extra.published = "fedplcc/digit5"
extra.protocol = "whole"

[datasets.whole]
config = "run.toml"
label = "All images"
set = { "run.rounds" = 3, "training.batch_size" = 8 }

[rows.average]
method = "fedavg"
label = "FedAvg"
extra.published = "FedAvg"

[rows.prototypes]
method = "fedplcc"
label = "FedPLCC"
extra.published = "FedPLCC"
"""
DOMAINS = ("mnist", "usps", "svhn", "synth", "mnistm")


def gaps(folder: Path, text: str, ours: dict[str, dict[str, tuple[float, float, float]]]) -> list[str]:
    """The lines of the table of a comparison whose cells have these means by data set, row and round."""
    path = write_comparison(folder, text)
    cells = cells_of(path, folder / "out")
    for cell in cells:
        if means := ours.get(cell.dataset, {}).get(cell.row):
            write_cell(cell, [dict.fromkeys(DOMAINS, value) for value in means])
    said = markdown(report(findings_of(path, cells), PUBLISHED)).partition("#### What explains the differences")[2]
    return said.partition("\n#")[0].splitlines()


def test_the_parts_are_the_protocol_and_the_best_round_in_it(tmp_path: Path) -> None:
    ours = {
        "few": {"average": (0.2, 0.6, 0.5), "prototypes": (0.2, 0.7, 0.6)},
        "whole": {"average": (0.2, 0.58, 0.55)},
    }
    said = gaps(tmp_path, TWO_PROTOCOLS, ours)
    assert "| FedAvg | +10.4 | +5.0 | +3.0 | +2.4 |" in said
    assert "| FedPLCC | +20.1 | - | +10.0 | +10.1 |" in said, (
        "without a cell in the protocol the best round here counts"
    )
    assert any("what a row gains on All images" in line for line in said)


def test_a_data_set_without_another_protocol_says_so(tmp_path: Path) -> None:
    text = TWO_PROTOCOLS.replace('extra.protocol = "whole"\n', "")
    said = gaps(tmp_path, text, {"few": {"average": (0.2, 0.6, 0.5)}})
    assert "| FedAvg | +10.4 | - | +10.0 | +0.4 |" in said
    assert any("No other protocol of this data set is in the comparison." in line for line in said)


def test_other_domains_than_the_published_ones_have_no_such_part(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, TWO_PROTOCOLS)
    cells = cells_of(path, tmp_path / "out")
    write_cell(cells[0], [{"mnist": 0.5, "svhn": 0.5}] * 3)
    text = markdown(report(findings_of(path, cells), PUBLISHED))
    assert "Beside the published numbers" in text
    assert "What explains the differences" not in text


def test_a_best_round_without_a_domain_explains_nothing(tmp_path: Path) -> None:
    path = write_comparison(tmp_path, TWO_PROTOCOLS)
    cells = cells_of(path, tmp_path / "out")
    whole = dict.fromkeys(DOMAINS, 0.5)
    write_cell(cells[0], [whole, {"mnist": 0.9, "svhn": 0.8}, whole])
    text = markdown(report(findings_of(path, cells), PUBLISHED))
    assert "| *FedAvg, difference* | -40.1 | -35.0 | +8.3 | +14.8 | +0.0 | -10.4 |" in text
    assert "What explains the differences" not in text


@given(st.floats(-100, 100), st.none() | st.floats(-100, 100), st.floats(0, 100))
def test_the_parts_add_up(whole: float, protocol: float | None, reported_round: float) -> None:
    found = Gap(whole=whole, protocol=protocol, reported_round=reported_round)
    assert abs((protocol or 0.0) + reported_round + found.unexplained - whole) < 1e-9
