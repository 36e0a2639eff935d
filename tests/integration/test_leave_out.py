"""A comparison that leaves out every domain once: its cells, what its report says of each domain, and its resumption."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedplcc.command.all_commands import app
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import simulated, write_config

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_workers")]

PLACES = [f"stripes.without-{name}" for name in tiny_federation.CLIENTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    with np.load(folder / "right.npz") as right:
        arrays = {name: right[name] for name in right.files}
    arrays["x_test"] = 255 - arrays["x_test"][:, ::2].repeat(2, axis=1)  # so that the two domains' accuracies differ
    np.savez(folder / "right.npz", **arrays)
    write_config(folder / "run.toml", tiny_federation.document(folder, run={"rounds": 2}))
    (folder / "compare.toml").write_text(
        '[datasets.stripes]\nconfig = "run.toml"\nleave_out = "each"\n\n[rows.average]\nmethod = "fedavg"\n'
    )
    return folder


def compared(folder: Path, out: Path, *arguments: str) -> Result:
    words = ["compare", "--config", str(folder / "compare.toml"), "--out", str(out), "--device", "cpu", *arguments]
    return CliRunner().invoke(app, words)


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return [*csv.DictReader(file)]


def test_a_domains_values_are_those_of_the_model_without_it_also_after_a_lost_cell(
    folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    dry = compared(folder, out, "--dry-run", "--json")
    assert json.loads(dry.stdout)["to_train"] == 2
    done = compared(folder, out, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["cells"] == {"whole": 2, "missing": 0}

    expected = {}
    for name in tiny_federation.CLIENTS:
        values = tiny_federation.document(folder, run={"rounds": 2, "method": "fedavg", "seed": 0})
        values.pop("method")
        values["clients"][name]["evaluate_only"] = True
        last = simulated(values, tmp_path / name)
        expected[name] = last["accuracy"][name]
        assert (out / f"stripes.without-{name}" / "average" / "seed-0" / "model.safetensors").read_bytes() == (
            tmp_path / name / "model.safetensors"
        ).read_bytes()
    assert len({*expected.values()}) == 2
    shown = {
        line["column"]: float(line["mean"])
        for line in table(out / "summary.csv")
        if (line["view"], line["model"]) == ("last", "global")
    }
    worst, mean = min(expected.values()), sum(expected.values()) / len(expected)
    assert shown == pytest.approx({**expected, "mean": mean, "worst": worst})
    assert summary["results"]["stripes"]["average"]["last"]["worst"]["mean"] == pytest.approx(worst)
    assert sorted(line["dataset"] for line in table(out / "cells.csv")) == PLACES
    report = (out / "report.md").read_text()
    assert "Each domain was left out once" in report
    assert "--set clients.CLIENT.evaluate_only=true" in report

    # A cell that is lost is trained alone, and until then no domain's values are shown.
    kept = (out / "summary.csv").read_bytes()
    shutil.rmtree(out / PLACES[0])
    told = compared(folder, out, "--report-only", "--json")
    assert json.loads(told.stdout)["results"]["stripes"]["average"]["seeds"] == []
    manifest = out / PLACES[1] / "average" / "seed-0" / "run.json"
    known = manifest.stat().st_mtime_ns
    assert compared(folder, out).exit_code == 0
    assert manifest.stat().st_mtime_ns == known
    assert (out / "summary.csv").read_bytes() == kept


def test_one_domain_cannot_be_left_out_of_itself(folder: Path, tmp_path: Path) -> None:
    values = tiny_federation.document(folder, run={"rounds": 2})
    for table_of in values["clients"].values():
        table_of["domain"] = "all"
    write_config(tmp_path / "run.toml", values)
    shutil.copy(folder / "compare.toml", tmp_path)
    done = compared(tmp_path, tmp_path / "out")
    assert done.exit_code == 2
    assert "needs clients of two domains at least, and all are of 'all'" in " ".join(done.stderr.split())
