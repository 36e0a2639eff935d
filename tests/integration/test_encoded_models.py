"""Models as bfloat16 or int8: the same bytes through interruptions and as processes, and as few as was foreseen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.computation.parts.wire import EXACT
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods import METHODS
from fedplcc.shared.types import ENCODED
from fedplcc.simulation import Simulation
from fedplcc.state.replay import replay
from fedplcc.trainer.cancellation import Cancelled
from tests.chaos.test_lost_answers import Aggregator
from tests.integration.test_methods_everywhere import (
    ASKS_BETWEEN_INTERRUPTIONS,
    BATCHES_PER_PASS,
    MOST_INTERRUPTIONS,
    ROUNDS,
    Outcome,
    document,
    simulated,
)
from tests.integration.test_round_bytes import check, received
from tests.support.federation import tiny_federation
from tests.support.federation.deployed import deployed
from tests.support.federation.grpc_client import ENDED, RUN_S, RunControl
from tests.support.federation.processes import Federation, eventually

pytestmark = pytest.mark.slow

PRECISIONS = ("bfloat16", "int8")
SHARES = {"bfloat16": 0.5, "int8": 0.25}
TRIED = [("fedplcc", "int8"), ("fedrep", "bfloat16")]
"""Prototypes beside the model, and tensors that clients keep."""


def encoded(data: Path, method: str, precision: str, **sections: Mapping[str, Any]) -> dict[str, Any]:
    return {**document(data, method, {}), "wire": {"precision": precision}, **sections}


@pytest.fixture(scope="module")
def processes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunControl]:
    with deployed(tmp_path_factory.mktemp("processes"), tiny_federation.document(data)["clients"]) as running:
        yield running.control


@pytest.mark.parametrize(("method", "precision"), TRIED)
def test_interruptions_and_processes_change_no_byte(
    method: str, precision: str, data: Path, folder: Path, processes: RunControl
) -> None:
    """A client that goes on has of its error what its folder holds, and of the last model nothing: it receives it whole."""
    values = encoded(data, method, precision)
    (folder / "whole").mkdir()
    undisturbed = simulated(values, folder / "whole")
    assert undisturbed.models != simulated_plain(data, method, folder).models
    (folder / "broken").mkdir()
    asked, interruptions, outcome = 0, 0, None
    setting = Setting(METHODS[method], values["method"])
    passes = sum(phase.epochs or 0 for phase in setting.method.phases(setting.config))
    most_asked = ASKS_BETWEEN_INTERRUPTIONS + BATCHES_PER_PASS * passes

    def stop_now() -> bool:
        nonlocal asked
        asked += 1
        return asked > most_asked

    while outcome is None:
        assert interruptions < MOST_INTERRUPTIONS, "it does not get on"
        asked = 0
        try:
            outcome = simulated(values, folder / "broken", stop_now)
        except Cancelled:
            interruptions += 1
    assert interruptions
    assert outcome == undisturbed
    assert processes.run_to_end(values) == undisturbed.lines


def simulated_plain(data: Path, method: str, folder: Path) -> Outcome:
    (folder / "plain").mkdir()
    return simulated(document(data, method, {}), folder / "plain")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounds_move_what_was_foreseen_to_the_byte(precision: str, data: Path, processes: RunControl) -> None:
    values = encoded(data, "fedavg", precision)
    run_id = processes.create(tiny_federation.run_document(values)).run_id
    eventually(lambda: processes.get(run_id).status in ENDED, f"run {run_id} ends", RUN_S)
    foreseen, timings = json.loads(processes.get(run_id).manifest_json)["round_bytes"], processes.timings(run_id)
    assert not foreseen["is_bound"]
    check(foreseen, timings)
    whole = foreseen["first_down"] - foreseen["down"]
    assert foreseen["up"] == foreseen["down"] == pytest.approx(SHARES[precision] * whole, rel=0.01)


def test_rounds_without_evaluation_and_drawn_cohorts_move_no_more_than_foreseen(
    data: Path, folder: Path, processes: RunControl
) -> None:
    """Whoever sat out has not the model that the round began with, and receives it whole."""
    values = encoded(data, "fedavg", "int8", evaluation={"every": 2, "last": 1})
    values["run"] = {**values["run"], "rounds": 4}
    simulation = Simulation(tiny_federation.federation(values), folder, request_id="r", device="cpu")
    try:
        simulation.run_to_end()
        record, foreseen = simulation.record(), simulation.manifest()["round_bytes"]
    finally:
        simulation.close()
    encoded_bytes = foreseen["up"]
    received = [
        {name: client.get("received_bytes", 0) for name, client in line["clients"].items()}
        for line in map(json.loads, record.timings_lines)
        if line["round"] > 1
    ]
    assert received == [dict.fromkeys(tiny_federation.CLIENTS, size) for size in (encoded_bytes, 0, encoded_bytes)], (
        "a round that follows one without evaluation begins with a difference"
    )
    assert processes.run_to_end(values) == tuple(record.metrics_lines)


def test_what_is_sent_is_what_timings_tell_where_a_client_sat_out(data: Path, tmp_path: Path) -> None:
    values = encoded(data, "fedavg", "int8")
    values["run"] = {**values["run"], "cohort_size": 1, "rounds": 5}
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        aggregator = Aggregator(federation)
        for client in tiny_federation.CLIENTS:
            federation.start_trainer(client, f"npz:{data / client}.npz")
        run_id = aggregator.control.create(tiny_federation.run_document(values)).run_id
        eventually(lambda: aggregator.control.get(run_id).status in ENDED, f"run {run_id} ends", RUN_S)
        timings = aggregator.control.timings(run_id)
        cohorts = [set(line["clients"]) for line in timings]
        assert any(before != after for before, after in pairwise(cohorts)), "somebody sat out"
        told = sum(received(client) for line in timings for client in line["clients"].values())
        assert aggregator.value("fedplcc_transfer_bytes_total", direction="sent", kind="model") == told
        aggregator.control.close()


def test_a_round_is_computed_again_from_what_was_decoded(data: Path, folder: Path) -> None:
    run_ids: list[str] = []
    simulated(encoded(data, "fedplcc", "int8"), folder, on_event=lambda event: run_ids.append(str(event.run_id)))
    found = replay(folder, run_ids[-1], ROUNDS[-1])
    assert found.recorded == found.computed
    assert found.recorded.keys() >= {ENCODED, EXACT}
