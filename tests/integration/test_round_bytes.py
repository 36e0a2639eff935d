"""Bytes of a round are known before it begins, and are those that it moves: every method simulated, some as processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedplcc.method_contract.settings import Setting
from fedplcc.runs.foreseen_bytes import foreseen_bytes
from fedplcc.simulation import Simulation
from tests.integration.test_methods_everywhere import document
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.grpc_client import ENDED, RUN_S, RunControl
from tests.support.federation.processes import eventually
from tests.support.records.method_settings import of_settings

pytestmark = pytest.mark.slow

SAMPLES = 24
"""Training images of each client."""


def received(client: Mapping[str, float]) -> float:
    return client.get("received_bytes", 0) + client.get("evaluation_received_bytes", 0)


def check(foreseen: Mapping[str, Any], timings: list[dict[str, Any]]) -> None:
    """Each client of each round moved what was foreseen; only prototypes, and what is called a bound, may be less."""
    for line in timings:
        begins = line["round"] == 1
        for client in line["clients"].values():
            up, down = client["sent_bytes"], received(client)
            assert 0 <= up - foreseen["up"] <= foreseen["prototypes_up"]
            most = foreseen["first_down" if begins else "down"]
            assert down <= most + foreseen["prototypes_down"]
            # An average over rounds begins in the second one, so that this starts from the model that it evaluated.
            assert down >= most or (foreseen["is_bound"] and line["round"] == 2)
        if not begins:
            moved = sum(map(received, line["clients"].values()))
            assert moved <= foreseen["all_down"]
            assert line["bytes_received"] <= foreseen["all_up"]
            assert foreseen["is_bound"] or (moved, line["bytes_received"]) == (foreseen["all_down"], foreseen["all_up"])


@of_settings(lambda setting: not setting.hyper or setting.goes_another_way, cover=True)
def test_a_round_moves_what_was_foreseen(setting: Setting, data: Path, tmp_path: Path) -> None:
    federation = tiny_federation.federation(document(data, setting.method.name, setting.hyper))
    before = foreseen_bytes(federation.config, [SAMPLES] * len(tiny_federation.CLIENTS))
    assert before is not None
    simulation = Simulation(federation, tmp_path, request_id="r", device="cpu")
    try:
        assert "round_bytes" not in simulation.manifest(), "nobody has made the model"
        simulation.run_to_end()
        foreseen, record = simulation.manifest()["round_bytes"], simulation.record()
    finally:
        simulation.close()
    assert foreseen == before.as_json(), "an outline of the model gives what the model gives"
    timings = [json.loads(line) for line in record.timings_lines]
    assert [line["round"] for line in timings if line["round"]] == [1, 2, 3]
    check(foreseen, [line for line in timings if line["round"]])


@pytest.fixture(scope="module")
def processes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunControl]:
    with deployed(tmp_path_factory.mktemp("processes"), tiny_federation.document(data)["clients"]) as running:
        yield running.control


@pytest.mark.parametrize("method", ["fedplcc", "classsums", pytest.param("fedrep", marks=pytest.mark.full)])
def test_processes_move_what_was_foreseen(method: str, data: Path, processes: RunControl) -> None:
    run_id = processes.create(tiny_federation.run_document(document(data, method, {}))).run_id
    eventually(lambda: processes.get(run_id).status in ENDED, f"run {run_id} ends", RUN_S)
    check(json.loads(processes.get(run_id).manifest_json)["round_bytes"], processes.timings(run_id))
