"""The README is short, and the results that it and the documents show are those of the cells that were trained."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, stdev

import pytest

from experiments import cells
from experiments.published.accuracies import published_tables
from tests.support import ROOT

EXPERIMENTS = ROOT / "experiments"
README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODS = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
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
@pytest.mark.parametrize(
    ("text", "num_rows", "num_columns"), [(README, 4, 2), (METHODS, 15, 3)], ids=["readme", "methods"]
)
def test_the_results_of_the_documents_are_those_of_the_cells(
    dataset: str, text: str, num_rows: int, num_columns: int
) -> None:
    published, at = published_tables()[f"fedplcc/{dataset}"], num_columns * DATASETS.index(dataset)
    lines = text.partition("<!-- results -->\n")[2].partition("<!-- /results -->")[0].splitlines()[2:]
    assert len(lines) == num_rows
    for line in lines:
        label, *shown_cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        folder = "chosen" if label in CHOSEN else "results"
        row, ours = CHOSEN.get(label, label.lower()), last_rounds(dataset, folder)
        known = published.of(label)
        printed = "" if known is None else f"{known['mean']:.1f}"
        shown = [ours.get((row, "mean"), ""), ours.get((row, "worst"), ""), printed]
        assert shown_cells[at : at + num_columns] == shown[:num_columns], label


@pytest.mark.parametrize(
    ("head", "model"), [("| global model |", "global"), ("| with the site's statistics |", "local")]
)
def test_the_tables_of_the_experiments_are_those_of_the_cells(head: str, model: str) -> None:
    text = (EXPERIMENTS / "README.md").read_text(encoding="utf-8")
    lines = (head + text.partition(head)[2]).partition("\n\n")[0].splitlines()
    rows = {label.replace(", clip, ", ", "): row for label, row in CHOSEN.items()}
    assert len(lines) == 2 + len(CHOSEN)
    for line in lines[2:]:
        label, seeds, *shown_cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        row = rows[label]
        for place, dataset in enumerate(DATASETS):
            ours, shown = last_rounds(dataset, "chosen", model), shown_cells[4 * place : 4 * place + 4]
            assert shown[:2] == [ours[row, column] for column in ("mean", "worst")], label
            assert shown[2:] == (["", ""] if row == "chosen" else below_the_chosen(dataset, row, model)), label
            last = seeds.split(";")[min(place, seeds.count(";"))].rpartition(" ")[
                2
            ]  # "0 to 7; 0 to 2" where they differ
            assert len(cells_of(dataset, "chosen")[row]) == int(last) + 1, label


def test_the_protocols_of_the_documents_are_those_of_the_cells() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- protocols -->\n")[2].partition("<!-- /protocols -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = ("caltech", "amazon", "webcam", "dslr", "mean")
    published = published_tables()["fedplcc/office10"].of("FedAvg")
    assert published is not None
    assert rows[2][1:6] == [f"{published[column]:.1f}" for column in columns]
    largest = []
    for label, *shown_cells in rows[3:]:
        means = {at: 100 * fmean(values) for at, values in last_values(label[0], "office10-protocols").items()}
        ours = {column: means["fedavg", column] for column in columns}
        largest.append(max(abs(ours[column] - published[column]) for column in columns[:-1]))
        others = [means.get((row, "mean")) for row in ("fpl", "fpl-tau02", "fedplcc")]
        shown = [*ours.values(), largest[-1], *others]
        assert shown_cells == ["" if value is None else f"{value:.1f}" for value in shown], label
    assert largest == sorted(largest)
    trained = {
        line["dataset"]
        for line in cells.read()
        if (line["comparison"], line["row"]) == ("office10-protocols", "fedavg")
    }
    assert {label[0] for label, *_ in rows[3:]} == trained


def test_the_methods_in_the_published_protocol_are_those_of_the_cells() -> None:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    lines = text.partition("<!-- published -->\n")[2].partition("<!-- /published -->")[0].splitlines()[2:]
    ours, published = last_rounds("office10-published", "results"), published_tables()["fedplcc/office10"]
    seeds_of = {row: len(seeds) for row, seeds in cells_of("office10-published", "results").items()}
    for line in lines:
        label, seeds, *shown = (cell.strip() for cell in line.strip("|").split("|"))
        known = published.of(label)
        printed = "" if known is None else f"{known['mean']:.1f}"
        means = [ours[label.lower(), column] for column in ("caltech", "amazon", "webcam", "dslr", "mean")]
        assert shown == [*means, printed], label
        assert int(seeds) == seeds_of.pop(label.lower()), label
    assert not seeds_of, "rows that are trained and not shown"


def cells_of(dataset: str, comparison: str, model: str = "global") -> dict[str, dict[int, dict[str, float]]]:
    """Accuracies of a comparison's trained cells, by row, seed and column."""
    found: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
    for line in cells.read():
        if (line["dataset"], line["comparison"], line["model"]) == (dataset, comparison, model):
            domains = dict(domain.split("=") for domain in line["domains"].split())
            columns = {"mean": line["mean"], "worst": line["worst"]} | domains
            found[line["row"]][int(line["seed"])] = {name: float(value) for name, value in columns.items()}
    return found


def last_rounds(dataset: str, comparison: str, model: str = "global") -> dict[tuple[str, str], str]:
    """A model's accuracies after the last round in percent, by row and column, as the documents write them."""
    return {place: written(values) for place, values in last_values(dataset, comparison, model).items()}


def last_values(dataset: str, comparison: str, model: str = "global") -> dict[tuple[str, str], list[float]]:
    """The same as numbers, one for each seed."""
    return {
        (row, column): [of[column] for of in seeds.values()]
        for row, seeds in cells_of(dataset, comparison, model).items()
        for column in next(iter(seeds.values()))
    }


def below_the_chosen(dataset: str, row: str, model: str) -> list[str]:
    """Mean and worst domain of the chosen less a row's, over the seeds of both."""
    found = cells_of(dataset, "chosen", model)
    seeds = sorted(found[row].keys() & found["chosen"].keys())
    return [
        written([found["chosen"][seed][key] - found[row][seed][key] for seed in seeds]) for key in ("mean", "worst")
    ]


def written(values: list[float]) -> str:
    """Mean and sample standard deviation in percent, as the documents write them."""
    return f"{100 * fmean(values):.1f}" + (f" ± {100 * stdev(values):.1f}" if len(values) > 1 else "")
