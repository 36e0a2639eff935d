"""The table of cells: what a finished cell adds to it, and that it has what the comparisons train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments import cells
from tests.support import ROOT

ENVIRONMENT = {"device": "cpu", "cpu": "x86_64 AVX2"}
ROUNDS = [
    {"round": number, "model_sha256": "ab", "prototypes_sha256": "cd", "accuracy_local": None}
    | {"accuracy": {"mean": 0.6, "worst": 0.5, "a": 0.7, "b": 0.5}, "accuracy_validation": {"mean": mean, "worst": 0.1}}
    for number, mean in enumerate([0.0, 0.4, 0.5], start=1)
]


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / "digits" / "fedavg" / "seed-2"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ROUNDS))
    (folder / "run.json").write_text(json.dumps({"clients": {"north": {"environment": ENVIRONMENT}}}))
    return folder


def test_a_cell_is_a_line_for_each_model_that_was_judged(cell: Path) -> None:
    (line,) = cells.lines_of("pilot", cell)
    assert line == {
        "comparison": "pilot",
        "dataset": "digits",
        "row": "fedavg",
        "seed": "2",
        "model": "global",
        "round": "3",
        "mean": "0.6",
        "worst": "0.5",
        "domains": "a=0.7 b=0.5",
        "machine": "x86_64 AVX2",
        "model_sha256": "ab",
        "prototypes_sha256": "cd",
    }


def test_of_a_choice_only_validation_images_are_told(cell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "NUM_LAST", 2)
    (line,) = cells.lines_of("choice-pilot", cell)
    assert (line["model"], line["mean"], line["domains"]) == ("validation", "0.45", "")


def test_a_cell_that_is_trained_again_replaces_its_lines(cell: Path) -> None:
    (line,) = cells.lines_of("pilot", cell)
    older = [line | {"mean": "0.1"}, line | {"mean": "0.1", "model": "local"}, line | {"seed": "10"}]
    assert cells.added(older, [line]) == [line, older[2]]


def test_the_table_is_in_the_order_of_its_keys_and_of_comparisons_that_there_are() -> None:
    table = cells.read()
    assert table == cells.added(table, [])
    names = {path.stem for path in (ROOT / "experiments").glob("*.toml")}
    assert {line["comparison"] for line in table} <= names | {"results"}
    assert all(len(line[key]) == 64 for line in table for key in ("model_sha256", "prototypes_sha256"))
    assert all(line["model"] == "validation" for line in table if line["comparison"].startswith(cells.CHOICES))
