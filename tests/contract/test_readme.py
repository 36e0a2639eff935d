"""What the README says of measurements is what the files of results say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS = ("mnist", "usps", "svhn", "synth", "mnistm", "mean", "worst")


def rounds_of(method: str) -> list[dict[str, Any]]:
    lines = (ROOT / "experiments" / "results" / f"digit5-{method}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def mean_of_last(method: str, count: int) -> float:
    return sum(100 * line["accuracy"]["mean"] for line in rounds_of(method)[-count:]) / count


@pytest.mark.parametrize(("method", "name"), [("fedavg", "FedAvg"), ("fedplcc", "FedPLCC")])
def test_the_table_of_digit_5_is_the_last_round_of_the_results(method: str, name: str) -> None:
    row = re.search(rf"^\| \**{name}\** \|(.*)\|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert row is not None
    rounds = rounds_of(method)
    assert [line["round"] for line in rounds] == list(range(1, 51))
    last = rounds[-1]["accuracy"]
    assert row[1].replace("*", "").split("|") == [f" {100 * last[column]:.1f} " for column in COLUMNS]


def test_what_the_readme_says_below_the_table_of_digit_5_follows_from_the_results() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    means = {method: f"{mean_of_last(method, 5):.1f}" for method in ("fedplcc", "fedavg")}
    assert f"Mean of the last five rounds: FedPLCC {means['fedplcc']}, FedAvg {means['fedavg']}" in text
    pairs = zip(rounds_of("fedplcc"), rounds_of("fedavg"), strict=True)
    behind = [ours["round"] for ours, theirs in pairs if ours["accuracy"]["mean"] <= theirs["accuracy"]["mean"]]
    assert f"FedPLCC passes FedAvg in round {behind[-1] + 1}" in text
