"""Clients that evaluate only, simulated and deployed: the others' model is as without them, and tested on their images."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import InvalidConfig
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow


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
    expected = (tmp_path / "simulated" / "metrics.jsonl").read_text().splitlines()
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        for client in values["clients"]:
            federation.start_trainer(
                client, f"npz:{data / client}.npz", *(["--evaluate-only"] if client == "far" else [])
            )
        with closing(RunControl(federation.address, tls=federation.operator_tls)) as control:
            assert [*control.run_to_end(values)] == expected, "the hashes of models and prototypes among them"


def test_a_federation_of_which_nobody_trains_is_refused(data: Path, tmp_path: Path) -> None:
    values = a_document(data, "fedavg")
    for table in values["clients"].values():
        table["evaluate_only"] = True
    with pytest.raises(
        InvalidConfig, match="every client has evaluate_only = true: a run needs at least one that trains"
    ):
        simulated(values, tmp_path / "nobody")
