"""How near the baseline comes to its published accuracies, domain by domain."""

from __future__ import annotations

from pathlib import Path

from experiments.published.by_domain import DomainDifferences
from experiments.published.parts import PUBLISHED
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from tests.support.records.comparisons import RUN, cells_of, findings_of, write_cell, write_comparison

PROTOCOLS = """
[compare]
name = "protocols"
baseline = "fedavg"

[datasets.few]
config = "run.toml"
label = "Few images"
extra.published = "fedplcc/office10"

[datasets.many]
config = "run.toml"
label = "Many images"
extra.published = "fedplcc/office10"
set = { "training.local_epochs" = 1 }

[datasets.large]
config = "run.toml"
label = "Large images"
extra.published = "fedplcc/office10"
set = { "training.momentum" = 0.5 }

[rows.fedavg]
method = "fedavg"
label = "FedAvg"
extra.published = "FedAvg"
"""
OFFICE = {"caltech": 62.5, "amazon": 83.16, "webcam": 72.41, "dslr": 53.33}
"""FedAvg's published accuracies in percent."""


def protocols(folder: Path, ours: dict[str, dict[str, float]], text: str = PROTOCOLS) -> list[str]:
    """The lines about how near protocols come, from points above the published accuracies."""
    path = write_comparison(folder, text, RUN)
    cells = cells_of(path, folder / "out")
    for cell in cells:
        if cell.dataset in ours:
            found = {domain: (OFFICE[domain] + points) / 100 for domain, points in ours[cell.dataset].items()}
            write_cell(cell, [found] * 3)
    said = markdown(report(findings_of(path, cells), PUBLISHED))
    return said.partition("## How near to FedPLCC, Office-10")[2].partition("\n## ")[0].splitlines()


def test_the_protocol_whose_farthest_domain_is_nearest_comes_first(tmp_path: Path) -> None:
    ours = {
        "few": {"caltech": -10.0, "amazon": -20.0, "webcam": -2.0, "dslr": 20.0},
        "many": {"caltech": 1.0, "amazon": -3.0, "webcam": -8.0, "dslr": -3.0},
        "large": {"caltech": 7.0, "amazon": 0.0, "webcam": -7.0, "dslr": 0.0},
    }
    said = protocols(tmp_path, ours)
    assert [line for line in said if line.startswith("|") and "---" not in line] == [
        "|  | Caltech | Amazon | Webcam | DSLR | mean | largest of a domain |",
        "| Large images | +7.0 | +0.0 | -7.0 | +0.0 | +0.0 | 7.0 |",
        "| Many images | +1.0 | -3.0 | -8.0 | -3.0 | -3.2 | 8.0 |",
        "| Few images | -10.0 | -20.0 | -2.0 | +20.0 | -3.0 | 20.0 |",
    ]
    assert "Not trained yet" not in "".join(said)


def test_of_two_as_near_in_the_farthest_domain_the_one_with_the_nearer_mean_comes_first() -> None:
    first = DomainDifferences({"east": 8.0, "west": -8.0}, {"mean": 0.0})
    second = DomainDifferences({"east": -8.0, "west": -6.0}, {"mean": -7.0})
    no_mean = DomainDifferences({"east": -8.0}, {})
    assert first.nearness == no_mean.nearness == (8.0, 0.0)
    assert second.nearness == (8.0, 7.0)


def test_protocols_that_are_not_trained_are_named(tmp_path: Path) -> None:
    said = protocols(tmp_path, {"many": dict.fromkeys(OFFICE, 1.0)})
    assert "| Many images | +1.0 | +1.0 | +1.0 | +1.0 | +1.0 | 1.0 |" in said
    assert "Not trained yet: Few images; Large images." in said


def test_a_baseline_without_a_published_row_has_no_such_table(tmp_path: Path) -> None:
    text = PROTOCOLS.replace('extra.published = "FedAvg"\n', "")
    assert protocols(tmp_path, {"many": dict.fromkeys(OFFICE, 1.0)}, text) == []
