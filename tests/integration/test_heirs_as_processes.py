"""Deployed runs that begin with other runs, on balanced batches of uneven classes: the simulated bytes through kills.

A trainer that was killed and knows its earlier runs refuses images that changed sides in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.simulation import Simulation
from tests.integration.test_recovery import RUN_S, Rest
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually

pytestmark = pytest.mark.slow

NUM_RARE = 2
"""Training images of the first class; the others have eight."""
LEFT, RIGHT = tiny_federation.CLIENTS


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uneven")
    tiny_federation.write_data(folder)
    for name in tiny_federation.CLIENTS:
        with np.load(folder / f"{name}.npz") as file:
            arrays = dict(file)
        rare_N = np.flatnonzero(arrays["y_train"] == 0)[NUM_RARE:]
        arrays |= {key: np.delete(arrays[key], rare_N, axis=0) for key in ("x_train", "y_train")}
        np.savez(folder / f"{name}.npz", **arrays)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, uneven: Path) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("federation")) as running:
        running.start_aggregator("--heartbeat-interval-s", "0.3")
        for name in tiny_federation.CLIENTS:
            running.start_trainer(name, f"npz:{uneven / name}.npz")
        running.start_gateway()
        yield running


def a_document(data: Path, initial: str | None = None, *, rounds: int = 2, batches: str = "balanced") -> dict[str, Any]:
    run = {"rounds": rounds, "initial_model": None if initial is None else f"run:{initial}"}
    return tiny_federation.document(data, "fedavg", run=run, training={"local_steps": 40, "batches": batches})


def simulated(data: Path, state: Path, *parents: int | None, **others: Any) -> list[list[dict[str, Any]]]:
    """Lines of simulated runs on one state directory, each after the one whose place it names."""
    state.mkdir()
    ids, found = list[str](), list[list[dict[str, Any]]]()
    for place, parent in enumerate(parents):
        values = a_document(data, None if parent is None else ids[parent], **others)
        with closing(
            Simulation(tiny_federation.federation(values), state, request_id=str(place), device="cpu")
        ) as simulation:
            ids.append(simulation.run_to_end().run_id)
            found.append([json.loads(line) for line in simulation.record().metrics_lines])
    return found


@pytest.mark.timeout(600)
def test_heirs_end_in_the_simulated_bytes_through_kills_and_refuse_images_that_changed_sides(
    federation: Federation, uneven: Path, tmp_path: Path
) -> None:
    rest = Rest(federation)
    parents = (None, 0, 1)
    expected = simulated(uneven, tmp_path / "balanced", *parents)
    assert simulated(uneven, tmp_path / "shuffled", None, batches="shuffled")[0] != expected[0]

    ids = list[str]()
    for place, parent in enumerate(parents):
        run_id = rest.start(a_document(uneven, None if parent is None else ids[parent]))
        if place < 2:  # SIGKILL in the middle of a balanced pass, of a trainer and in the heir of the aggregator too
            rest.wait_training(run_id, 1, RIGHT)
            federation.processes[f"trainer-{RIGHT}"].kill()
            if place:
                federation.processes["aggregator"].kill()
                federation.start_aggregator("--heartbeat-interval-s", "0.3")
            federation.processes[f"trainer-{RIGHT}"].start()
        run = rest.wait(run_id, "completed")
        ids.append(run_id)
        assert rest.metrics(run_id) == expected[place]
        assert run["config"]["run"].get("initial_runs") == (ids[-2::-1] or None)
        manifest = rest.call("GET", f"/v1/runs/{run_id}/manifest")
        assert (manifest["initial_model"] or {}).get("run_id") == (None if parent is None else ids[parent])

    with np.load(uneven / f"{LEFT}.npz") as file:
        arrays = dict(file)
    sides = {
        f"{kind}_{side}": arrays[f"{kind}_{other}"]
        for kind in "xy"
        for side, other in (("train", "test"), ("test", "train"))
    }
    federation.processes[f"trainer-{LEFT}"].kill()
    np.savez(uneven / f"{LEFT}.npz", **{**arrays, **sides})
    federation.processes[f"trainer-{LEFT}"].start()
    run_id = rest.start(a_document(uneven, ids[0]))

    def refuses() -> bool:
        clients = {each["client_id"]: each["problem"] for each in rest.call("GET", "/v1/clients")["clients"]}
        return clients[LEFT] is not None and clients[LEFT]["reason"] == "INVALID_DATA"

    eventually(refuses, "the trainer refuses its images", RUN_S)
    assert f"were trained on in run {ids[0]}" in federation.processes[f"trainer-{LEFT}"].log(), "its own log says why"
    assert rest.run(run_id)["status"] == "running"
    rest.call("POST", f"/v1/runs/{run_id}/stop")
    rest.wait(run_id, "stopped")
