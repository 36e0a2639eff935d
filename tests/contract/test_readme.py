"""The README is short, and the results that it and the documents show are those of the reports."""

from __future__ import annotations

import csv
import json
import shutil
import zipfile
from pathlib import Path
from statistics import mean, stdev

import pytest

from experiments.published.__main__ import main as write
from experiments.published.accuracies import published_tables
from tests.support import ROOT

EXPERIMENTS = ROOT / "experiments"
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPUTED = {
    "results": ("report.md", "summary.csv", "differences.csv", "cells.csv"),
    "chosen": ("report.md", "summary.csv"),
    "choice-digit5": ("report.md",),
    "choice-office10": ("report.md",),
    "office10-protocols": ("report.md", "summary.csv"),
}
"""Committed files that follow from the archived cells, by the folder of a comparison."""
FILES = {
    "results": "compare.toml",
    "chosen": "chosen.toml",
    "choice-digit5": "choice-digit5.toml",
    "choice-office10": "choice-office10.toml",
    "office10-protocols": "office10-protocols.toml",
}
TABLE = README.partition("<!-- results -->\n")[2].partition("<!-- /results -->")[0]
"""The results: mean over domains, worst domain and published mean of each data set."""
DATASETS = ("digit5", "office10")
CHOSEN = {
    "FedPLCC, clip": "clip",
    "FedPLCC, chosen": "chosen",
    "FedAvg, clip, the same parts": "fedavg-parts",
    "FPL, clip, the same parts": "fpl-parts",
    "FPL, clip, coefficients chosen, the same parts": "fpl-own-parts",
    "FedPLVM, clip, the same parts": "fedplvm-parts",
    "FedPLVM, clip, coefficients chosen, the same parts": "fedplvm-own-parts",
}
"""Rows of the comparison of what was chosen by label; the names of other rows are their labels in lower case."""


def test_the_readme_has_at_most_1300_words() -> None:
    assert len(README.split()) <= 1300


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_results_of_the_readme_are_those_of_the_report(dataset: str) -> None:
    published, at = published_tables()[f"fedplcc/{dataset}"], 3 * DATASETS.index(dataset)
    lines = TABLE.splitlines()[2:]
    assert lines, "the README shows no results between their marks"
    for line in lines:
        label, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        folder = "chosen" if label in CHOSEN else "results"
        row, ours = CHOSEN.get(label, label.lower()), last_rounds(dataset, folder)
        assert f"\n| {label} |" in (EXPERIMENTS / folder / "report.md").read_text(encoding="utf-8")
        known = published.of(label)
        printed = "" if known is None else f"{known['mean']:.1f}"
        assert cells[at : at + 3] == [ours.get((row, "mean"), ""), ours.get((row, "worst"), ""), printed], label


@pytest.mark.parametrize(
    ("head", "model"), [("| global model |", "global"), ("| with the site's statistics |", "local")]
)
def test_the_tables_of_the_experiments_are_those_of_the_report(head: str, model: str) -> None:
    text = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    lines = (head + text.partition(head)[2]).partition("\n\n")[0].splitlines()
    rows = {label.replace(", clip, ", ", "): row for label, row in CHOSEN.items()}
    assert len(lines) == 2 + len(CHOSEN)
    for line in lines[2:]:
        label, seeds, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        row = rows[label]
        for place, dataset in enumerate(DATASETS):
            ours, shown = last_rounds(dataset, "chosen", model), cells[4 * place : 4 * place + 4]
            assert shown[:2] == [ours[row, column] for column in ("mean", "worst")], label
            assert shown[2:] == (["", ""] if row == "chosen" else below_the_chosen(dataset, row, model)), label
            last = seeds.split(";")[min(place, seeds.count(";"))].rpartition(" ")[
                2
            ]  # "0 to 7; 0 to 2" where they differ
            assert num_seeds(dataset, "chosen")[row] == int(last) + 1, label


def test_the_protocols_of_the_documents_are_those_of_the_report() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- protocols -->\n")[2].partition("<!-- /protocols -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = ("caltech", "amazon", "webcam", "dslr", "mean")
    published = published_tables()["fedplcc/office10"].of("FedAvg")
    assert published is not None
    assert rows[2][1:6] == [f"{published[column]:.1f}" for column in columns]
    largest = []
    for label, *cells in rows[3:]:
        means = last_means(label[0], "office10-protocols")
        ours = {column: means["fedavg", column][0] for column in columns}
        largest.append(max(abs(ours[column] - published[column]) for column in columns[:-1]))
        others = [means.get((row, "mean")) for row in ("fpl", "fpl-tau02", "fedplcc")]
        shown = [*ours.values(), largest[-1], *(other and other[0] for other in others)]
        assert cells == ["" if value is None else f"{value:.1f}" for value in shown], label
    assert largest == sorted(largest)
    with (EXPERIMENTS / "office10-protocols" / "summary.csv").open(encoding="utf-8") as file:
        trained = {line["dataset"] for line in csv.DictReader(file) if line["row"] == "fedavg"}
    assert {label[0] for label, *_ in rows[3:]} == trained


def test_the_methods_in_the_published_protocol_are_those_of_the_report() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- published -->\n")[2].partition("<!-- /published -->")[0].splitlines()[2:]
    ours, published = last_rounds("office10-published", "results"), published_tables()["fedplcc/office10"]
    seeds_of = num_seeds("office10-published", "results")
    for line in lines:
        label, seeds, *shown = (cell.strip() for cell in line.strip("|").split("|"))
        known = published.of(label)
        printed = "" if known is None else f"{known['mean']:.1f}"
        means = [ours[label.lower(), column] for column in ("caltech", "amazon", "webcam", "dslr", "mean")]
        assert shown == [*means, printed], label
        assert int(seeds) == seeds_of.pop(label.lower()), label
    assert not seeds_of, "rows that are trained and not shown"


def num_seeds(dataset: str, folder: str) -> dict[str, int]:
    """Seeds of the trained rows of a comparison."""
    with (EXPERIMENTS / folder / "summary.csv").open(encoding="utf-8") as file:
        return {line["row"]: int(line["seeds"]) for line in csv.DictReader(file) if line["dataset"] == dataset}


def last_rounds(dataset: str, folder: str, model: str = "global") -> dict[tuple[str, str], str]:
    """A model's accuracies after the last round in percent, by row and column, as the documents write them."""
    return {
        place: f"{centre:.1f}" + ("" if std is None else f" ± {std:.1f}")
        for place, (centre, std) in last_means(dataset, folder, model).items()
    }


def last_means(dataset: str, folder: str, model: str = "global") -> dict[tuple[str, str], tuple[float, float | None]]:
    """The same as numbers: mean and standard deviation over seeds, None with one seed."""
    with (EXPERIMENTS / folder / "summary.csv").open(encoding="utf-8") as file:
        return {
            (line["row"], line["column"]): (
                100 * float(line["mean"]),
                100 * float(line["std"]) if line["std"] else None,
            )
            for line in csv.DictReader(file)
            if (line["dataset"], line["view"], line["model"]) == (dataset, "last", model)
        }


def below_the_chosen(dataset: str, row: str, model: str) -> list[str]:
    """Mean and worst domain of the chosen less a row's, over the seeds of both, computed from the archived cells."""
    with zipfile.ZipFile(EXPERIMENTS / "chosen" / f"{dataset}.zip") as cells:
        names = set(cells.namelist())
        seeds = [seed for seed in range(8) if {evaluations(of, seed) for of in (row, "chosen")} <= names]
        pairs = [
            [last_accuracies(cells.read(evaluations(of, seed)), model) for of in ("chosen", row)] for seed in seeds
        ]
    differences = [
        [100 * (statistic(chosen) - statistic(other)) for chosen, other in pairs] for statistic in (mean, min)
    ]
    return [f"{mean(values):.1f} ± {stdev(values):.1f}" for values in differences]


def evaluations(row: str, seed: int) -> str:
    """Name of a cell's evaluations in its archive."""
    return f"{row}/seed-{seed}/evaluations.jsonl"


def last_accuracies(lines: bytes, model: str) -> list[float]:
    """A model's accuracies on the domains' test images after the last round."""
    records = [json.loads(line) for line in lines.splitlines()]
    last = max(record["round"] for record in records)
    counts = [of for record in records if record["round"] == last for of in record["counts"]]
    return [sum(of["correct"]) / sum(of["total"]) for of in counts if (of["model"], of["set_name"]) == (model, "test")]


@pytest.mark.parametrize("folder", COMPUTED)
def test_the_report_of_the_experiments_follows_from_their_archives(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / folder
    copied.mkdir()
    for archive in (EXPERIMENTS / folder).glob("*.zip"):
        shutil.copy(archive, copied)
    monkeypatch.chdir(ROOT)
    write([f"experiments/{FILES[folder]}", str(copied)])
    for name in COMPUTED[folder]:
        assert (copied / name).read_bytes() == (EXPERIMENTS / folder / name).read_bytes(), name
