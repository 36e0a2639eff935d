"""`fedplcc.compare` from Python: the command's cells and bytes, mappings, choices, and failures that stop no other cell."""

from __future__ import annotations

import json
import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fedplcc
from fedplcc.command.all_commands import app
from fedplcc.shared.process.log import OUR_LOGGERS
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, write_config

pytestmark = pytest.mark.usefixtures("forked_workers")

COMPARISON = """
[compare]
seeds = [0]

[datasets.stripes]
config = "run.toml"

[rows.average]
method = "fedavg"

[rows.clusters]
method = "fedplcc"
set = { "training.local_steps" = 2 }
"""
CELLS = ["stripes/average/seed-0", "stripes/clusters/seed-0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    write_config(folder / "run.toml", tiny_federation.document(folder, run={"rounds": 2}))
    (folder / "compare.toml").write_text(COMPARISON)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path) -> fedplcc.ComparisonResult:
    return fedplcc.compare(data / "compare.toml", out=data / "out", device="cpu", jobs=2)


def test_the_cells_are_those_of_the_command_byte_for_byte(
    data: Path, trained: fedplcc.ComparisonResult, tmp_path: Path
) -> None:
    words = ["compare", "--config", str(data / "compare.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for name in CELLS:
        assert hashed(trained.folder / name) == hashed(tmp_path / "out" / name)
    for name in ("summary.csv", "evaluations.csv", "cells.csv"):
        assert (trained.folder / name).read_bytes() == (tmp_path / "out" / name).read_bytes(), name


def test_the_result_has_a_record_of_each_cell_with_the_values_of_its_last_round(
    trained: fedplcc.ComparisonResult,
) -> None:
    assert trained.missing == {}
    assert trained.report.exists()
    assert [(cell.dataset, cell.row, cell.method, cell.seed) for cell in trained.cells] == [
        ("stripes", "average", "fedavg", 0),
        ("stripes", "clusters", "fedplcc", 0),
    ]
    for cell, name in zip(trained.cells, CELLS, strict=True):
        lines = [json.loads(line) for line in (trained.folder / name / "metrics.jsonl").read_text().splitlines()]
        accuracies = [line["accuracy"] for line in lines]
        assert cell.mean_accuracy == pytest.approx(accuracies[-1]["mean"])
        assert cell.worst_accuracy == accuracies[-1]["worst"]
        assert cell.best_mean_accuracy == pytest.approx(max(each["mean"] for each in accuracies))
    assert [*trained.results] == CELLS
    assert trained.results[CELLS[1]].config.training.local_steps == 2
    assert "2 cells, 0 missing" in repr(trained)


def test_a_program_that_set_up_no_logging_gets_no_line_of_ours(trained: fedplcc.ComparisonResult, data: Path) -> None:
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    fedplcc.compare(data / "compare.toml", out=trained.folder, report_only=True)
    assert not any(logging.getLogger(name).isEnabledFor(logging.WARNING) for name in OUR_LOGGERS)


def test_a_mapping_finds_its_files_from_the_present_folder_and_cells_can_be_chosen(
    data: Path, trained: fedplcc.ComparisonResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    found = fedplcc.compare(tomllib.loads(COMPARISON), out=tmp_path / "out", only=["average"], device="cpu")
    assert [cell.row for cell in found.cells] == ["average"]
    assert found.missing == {"stripes/clusters/seed-0": "not trained yet"}
    assert hashed(tmp_path / "out" / CELLS[0]) == hashed(trained.folder / CELLS[0])
    report = fedplcc.compare(tomllib.loads(COMPARISON), out=tmp_path / "out", report_only=True)
    assert [*report.cells] == [*found.cells]


def test_a_cell_that_cannot_be_trained_is_missing_with_its_reason(data: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = tiny_federation.document(data, run={"rounds": 1})
    document["clients"] = {name: {"data": f"npz:{tmp_path}/none.npz"} for name in tiny_federation.CLIENTS}
    write_config(tmp_path / "broken.toml", document)
    (tmp_path / "compare.toml").write_text(COMPARISON.replace("run.toml", "broken.toml"))
    with pytest.warns(UserWarning, match=r"stripes cannot be trained: client left: .*none\.npz"):
        found = fedplcc.compare(tmp_path / "compare.toml", out=tmp_path / "out", only=["average"], device="cpu")
    assert len(found.cells) == 0
    assert "none.npz" in found.missing["stripes/average/seed-0"]
    assert found.missing["stripes/clusters/seed-0"] == "not trained yet"
