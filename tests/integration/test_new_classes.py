"""A run goes on with a class that nobody planned: the same bytes from a file, from a run, and after kills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.tensors import from_bytes
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import simulated

pytestmark = pytest.mark.slow

RUN_S = 120.0
CLASSES = ["plain", "thin", "wide"]
"""Those of the second run; the first one knows thin and wide."""


def before(data: Path) -> dict[str, Any]:
    """A run of two rounds and two classes."""
    values = tiny_federation.document(data, run={"rounds": 2}, data={"classes": ["thin", "wide"]})
    for name in tiny_federation.CLIENTS:
        values["clients"][name]["data"] = f"npz:{without_plain(data, name)}"
    return values


def without_plain(data: Path, name: str) -> Path:
    """A client's data before the third class came."""
    path = data / f"{name}-without-plain.npz"
    if not path.exists():
        arrays = dict(np.load(data / f"{name}.npz"))
        for split in ("train", "test"):
            is_kept = arrays[f"y_{split}"] < 2
            arrays |= {f"{axis}_{split}": arrays[f"{axis}_{split}"][is_kept] for axis in "xy"}
        np.savez(path, **{**arrays, "classes": np.array(["thin", "wide"])})
    return path


def after(data: Path, source: str, **run: Any) -> dict[str, Any]:
    """A run of all three classes that begins with the model of the run before."""
    run = {"rounds": 2, "initial_model": source, **run}
    return tiny_federation.document(data, run=run, data={"classes": CLASSES})


def lines_of(control: RunControl, run_id: str, number: int) -> list[dict[str, Any]]:
    eventually(lambda: len([*filter(None, control.metrics_lines(run_id))]) >= number, f"round {number} ends", RUN_S)
    return [json.loads(line) for line in control.metrics_lines(run_id) if line]


@pytest.mark.full
def test_a_run_goes_on_with_a_class_more(data: Path, tmp_path: Path) -> None:
    simulated(before(data), tmp_path / "before")
    model = tmp_path / "before" / "model.safetensors"
    simulated(after(data, f"file:{model}", initial_classes=["thin", "wide"]), tmp_path / "after")
    expected = [json.loads(line) for line in (tmp_path / "after" / "metrics.jsonl").read_text().splitlines()]
    assert from_bytes((tmp_path / "after" / "model.safetensors").read_bytes())["classifier.weight"].shape[0] == 3
    with Federation(tmp_path) as federation:
        aggregator = federation.start_aggregator()
        trainers = [
            federation.start_trainer(name, before(data)["clients"][name]["data"]) for name in tiny_federation.CLIENTS
        ]
        control = RunControl(federation.address, tls=federation.operator_tls)
        source = control.create(tiny_federation.run_document(before(data))).run_id
        lines_of(control, source, 2)
        for trainer in trainers:
            trainer.kill()
        for name in tiny_federation.CLIENTS:
            federation.processes.pop(f"trainer-{name}")
            trainers.append(federation.start_trainer(name, after(data, "")["clients"][name]["data"]))
        values = tiny_federation.run_document(after(data, f"run:{source}@2"))
        run_id = control.create(values).run_id
        lines_of(control, run_id, 1)
        for process in (aggregator, *trainers[2:]):
            process.kill()
        federation.start_aggregator()
        for trainer in trainers[2:]:
            trainer.start()
        control.close()
        control = RunControl(federation.address, tls=federation.operator_tls)
        assert lines_of(control, run_id, 2) == expected
        carried = control.create(
            tiny_federation.run_document(after(data, f"run:{source}@2", initial_prototypes=True))
        ).run_id
        lines = lines_of(control, carried, 2)
        assert lines[0]["model_sha256"] != expected[0]["model_sha256"], "round 1 trained with the carried prototypes"
        control.close()
