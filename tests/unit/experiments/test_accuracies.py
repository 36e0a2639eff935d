"""Published accuracies: as they are printed, and beside ours where the set-up is the same."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from pydantic import ValidationError

from experiments.published.accuracies import PublishedTable, published_tables
from experiments.published.parts import PUBLISHED
from fedplcc.comparison.report.document import markdown
from fedplcc.comparison.report.parts import report
from tests.support import present
from tests.support.records.comparisons import (
    COMPARISON,
    cells_of,
    fill,
    findings_of,
    write_cell,
    write_comparison,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_comparison(tmp_path)


def test_every_published_table_is_whole_and_samples_are_as_printed() -> None:
    every = published_tables()
    assert every["fedplcc/digit5"].of("FedPLCC") == {
        "mnist": 94.92,
        "usps": 91.98,
        "svhn": 66.33,
        "synth": 69.65,
        "mnistm": 77.58,
        "mean": 80.092,
    }
    samples = {
        ("fedplcc/office10", "FPL", "dslr"): 70.00,
        ("fedplcc/domainnet10", "FedProto", "quickdraw"): 46.30,
        ("fedplcc/digit5-ablation", "all prototype weights 1", "mean"): 76.628,
        ("fedccl/digit5-balanced", "FedPCL", "local usps"): 81.00,
        ("fedccl/office10-imbalanced", "FedCCL", "local dslr"): 93.54,
        ("fedccl/domainnet10-imbalanced", "FedCCL", "local quickdraw"): 25.20,
        ("fedccl/cifar10", "FedProto", "local mean"): 60.72,
        ("fedccl/office10-balanced-ablation", "both", "local mean"): 94.71,
        ("fedccl/mnist-attacked", "FedCCL+", "global/fgsm mean"): 69.90,
        ("fedccl/fashionmnist-attacked", "FedAvg+", "global/pgd20 mean"): 0.43,
        ("fedmlp/cifar100-sharding", "FedMLP", "global/all mean"): 61.02,
        ("fedmlp/cifar100-sharding", "FedNTD", "global/all mean"): 37.03,
        ("fedmlp/cifar10-sharding-2", "CReFF", "local mean"): 29.77,
        ("fedmlp/cifar10-dirichlet-0.1", "FedMLP", "local mean"): 79.26,
        ("fedmlp/cifar10-dirichlet-0.1", "FedNTD", "local mean"): 72.25,
        ("fedmlp/femnist-dirichlet", "FedProto", "global/all mean"): 33.50,
        ("fedmlp/mnist-sharding", "FedRep", "global/all mean"): 98.71,
        ("fedmlp/cifar10-sharding-4-ablation", "L_P and L_SP", "local minority"): 78.11,
    }
    for (key, method, column), value in samples.items():
        found = present(every[key].of(method))
        assert found[column] == value, key
    assert every["fedplcc/digit5"].of("FedAvg2") is None
    assert all(table.source.count("http") or "CVPR" in table.source for table in every.values())
    assert all(table.differs for table in every.values()), "no set-up is ours to the letter"


def test_fedmlps_tables_agree_with_what_its_text_says_of_them() -> None:
    """Three sentences of the paper name differences; and the whole ablation is the main table's row of the same set-up."""
    every = published_tables()

    def above(key: str, column: str, other: str) -> float:
        ours, theirs = every[key].of("FedMLP"), every[key].of(other)
        assert ours is not None
        assert theirs is not None
        return round(ours[column] - theirs[column], 2)

    assert above("fedmlp/cifar100-sharding", "global/all mean", "FedNTD") == 23.99
    assert above("fedmlp/cifar10-dirichlet-0.1", "local mean", "FedNTD") == 7.01
    whole = every["fedmlp/cifar10-sharding-4-ablation"].of("L_P and L_SP and L_IT")
    row = every["fedmlp/cifar10-sharding-4"].of("FedMLP")
    assert whole is not None
    assert row is not None
    assert {column: whole[column] for column in row} == row
    mains = [table for key, table in every.items() if key.startswith("fedmlp/") and not key.endswith("ablation")]
    assert len(mains) == 10
    assert {len(table.accuracy) for table in mains} == {7}


def test_printed_averages_are_the_means_of_their_rows_but_for_nine() -> None:
    """Nine are not, and the notes of their tables say so."""
    wrong = []
    for key, table in published_tables().items():
        for method in table.accuracy:
            values = present(table.of(method))
            (mean, *more) = [column for column in values if column.endswith("mean")]
            printed = values.pop(mean)
            if values and not more and abs(sum(values.values()) / len(values) - printed) > 0.011:
                wrong.append((key, method))
    assert len(wrong) == 9
    noted = [
        key
        for key, table in published_tables().items()
        if any("not the mean of their row" in note for note in table.notes)
    ]
    assert {key for key, _ in wrong} <= set(noted)


def test_the_numbers_are_written_as_lists_that_a_person_can_check() -> None:
    text = (resources.files("experiments.published") / "accuracies.toml").read_text()
    assert set(tomllib.loads(text)) == set(published_tables())


def test_published_numbers_stand_beside_ours_with_what_differs(path: Path, tmp_path: Path) -> None:
    fill(path, tmp_path / "out")
    text = markdown(report(findings_of(path, cells_of(path, tmp_path / "out")), PUBLISHED))
    beside = text.partition("#### Beside the published numbers")[2].partition("![")[0]
    assert "- The images are made up.\n- There are two domains." in beside
    assert "| FedAvg, here (3 seeds) | 71.0 ± 1.0 | - | 31.0 ± 1.0 | - | - | - |" in beside
    assert "| *FedAvg, published* | 90.10 | 85.05 | 41.66 | 35.20 | 49.96 | 60.39 |" in beside
    assert "| *FedAvg, difference* | -19.1 | - | -10.7 | - | - | - |" in beside
    assert "arxiv.org/abs/2409.18578, Table II" in beside
    assert text.count("Beside the published numbers") == 1, "once, where most of its rows stand"


def test_a_mean_is_compared_with_one_over_the_same_domains_alone(path: Path, tmp_path: Path) -> None:
    cells = cells_of(path, tmp_path / "out")
    for cell in cells:
        write_cell(cell, [dict.fromkeys(("mnist", "usps", "svhn", "synth", "mnistm"), 0.5)] * 3)
    text = markdown(report(findings_of(path, cells), PUBLISHED))
    assert "| *FedAvg, difference* | -40.1 | -35.0 | +8.3 | +14.8 | +0.0 | -10.4 |" in text


def test_tables_of_clients_own_models_stand_beside_ours(tmp_path: Path) -> None:
    text = COMPARISON.replace('"fedplcc/digit5"', '["fedccl/digit5-balanced", "fedmlp/mnist-sharding"]')
    text = text.replace('published = "FedPLCC"', 'published = ["FedCCL", "FedMLP"]')
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    fill(path, out)
    beside = markdown(report(findings_of(path, cells_of(path, out)), PUBLISHED)).partition(
        "#### Beside the published numbers"
    )[2]
    assert beside.index("- There are two domains.") < beside.index("- The paper judges the clients' own models")
    assert "| FedPLCC, here (3 seeds) | 28.3 ± 0.0 | 13.3 ± 0.0 | - | - | - | - |" in beside
    assert "| *FedPLCC, difference* | -47.6 | -16.1 | - | - | - | - |" in beside
    assert "FedAvg, here" not in beside, "its clients keep no model"
    assert "FedMLP, MNIST, sharding" not in beside, "the cells have no passes over stages"
    assert "|  | MNIST | SVHN | mean |" in markdown(report(findings_of(path, cells_of(path, out)), PUBLISHED))


def test_numbers_under_attack_stand_beside_ours(tmp_path: Path) -> None:
    text = COMPARISON.replace('"fedplcc/digit5"', '"fedccl/mnist-attacked"')
    text = text.replace('published = "FedPLCC"', 'published = "FedCCL+"')
    path, out = write_comparison(tmp_path, text), tmp_path / "out"
    cells = cells_of(path, out)
    for cell in cells:
        write_cell(cell, [{"mnist": 0.5}] * 3)
        metrics = cell.folder / "metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        for line in lines:
            line["accuracy_attacked"] = {"fgsm": {"mnist": 0.25, "mean": 0.25, "worst": 0.25}}
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    beside = markdown(report(findings_of(path, cells), PUBLISHED)).partition("#### Beside the published numbers")[2]
    assert "|  | clean | FGSM | PGD-20 |" in beside
    assert "| FedAvg, here (3 seeds) | 50.0 ± 0.0 | 25.0 ± 0.0 | - |" in beside
    assert "| *FedAvg, difference* | -45.8 | -17.6 | - |" in beside


def test_a_column_of_an_unknown_model_is_refused() -> None:
    table = {
        "title": "T",
        "source": "S",
        "view": "last",
        "columns": ["global/fgms mean"],
        "labels": ["x"],
        "accuracy": {},
    }
    with pytest.raises(ValidationError, match="no model is called 'global/fgms'"):
        PublishedTable.model_validate(table)
