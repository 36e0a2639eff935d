"""Clients that evaluate only, simulated and deployed: the others' model is as without them, and tested on their images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.toml_text import toml_tables
from fedplcc.shared.errors import InvalidConfig
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

RUN_S = 150.0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tiny_federation.write_data(folder)
    with np.load(folder / "right.npz") as right:
        arrays = {name: right[name] for name in right.files}
    arrays["x_test"] = 255 - arrays["x_test"]
    np.savez(folder / "far.npz", **arrays)
    return folder


def a_document(data: Path, method: str, *, has_far: bool = True, **sections: Any) -> dict[str, Any]:
    values = tiny_federation.document(data, method, run={"rounds": 2}, **sections)
    if has_far:
        values["clients"]["far"] = {"data": f"npz:{data / 'far.npz'}", "evaluate_only": True}
        values["run"]["clients"] = sorted(values["clients"])
    return values


@pytest.mark.parametrize("method", ["fedplcc", "classsums"])
def test_the_model_is_as_without_it_simulated_and_its_domain_is_told(method: str, data: Path, tmp_path: Path) -> None:
    last = simulated(a_document(data, method), tmp_path / "with")
    simulated(a_document(data, method, has_far=False), tmp_path / "without")
    assert hashed(tmp_path / "with")["model.safetensors"] == hashed(tmp_path / "without")["model.safetensors"]
    assert last["cohort"] == ["left", "right"]
    assert set(last["accuracy"]) == {"left", "right", "far", "mean", "worst"}
    assert last["accuracy"]["far"] is not None
    assert set(last.get("joining", {"left", "right"})) == {"left", "right"}
    roster = json.loads((tmp_path / "with" / "run.json").read_text())["clients"]
    assert roster["far"]["num_examples"] == 0


def test_deployed_it_ends_in_the_bytes_of_the_simulation(data: Path, tmp_path: Path) -> None:
    values = a_document(data, "fedavg", evaluation={"own_classes": True})
    simulated(values, tmp_path / "simulated")
    config = tmp_path / "run.toml"
    config.write_text(toml_tables(values))
    done = subprocess.run(
        [sys.executable, "-m", "fedplcc", "demo", "--config", str(config), "--out", str(tmp_path / "demo"), "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FEDPLCC_DEVICE": "cpu"},
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert hashed(tmp_path / "demo") == hashed(tmp_path / "simulated")


def test_a_federation_of_which_nobody_trains_is_refused(data: Path, tmp_path: Path) -> None:
    values = a_document(data, "fedavg")
    for table in values["clients"].values():
        table["evaluate_only"] = True
    with pytest.raises(
        InvalidConfig, match="every client has evaluate_only = true: a run needs at least one that trains"
    ):
        simulated(values, tmp_path / "nobody")
