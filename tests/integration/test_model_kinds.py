"""Federations whose clients have models of different kinds: the same bytes twice, through restarts and as processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.interruption import Interrupted
from fedplcc.runs.artifacts import EVALUATIONS
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.tensors import sha256_hex, to_bytes
from fedplcc.trainer.models import build_model, state_arrays
from fedplcc.trainer.task.client_state import ClientStates
from tests.support.federation import tiny_federation
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, eventually
from tests.support.federation.simulations import hashed, simulated

pytestmark = pytest.mark.slow

KINDS = {"left": {"name": "resnet10", "stem": "cifar3x3", "norm": "group"}, "right": {"name": "cnn5"}}
"""Other feature sizes than the run's cnn4, and the same one."""
FLAGS = {"left": ("--model", "resnet10", "--stem", "cifar3x3", "--norm", "group"), "right": ("--model", "cnn5")}
SAID = {"left": "resnet10-groupnorm cifar3x3", "right": "cnn5"}
ASKS_BETWEEN_INTERRUPTIONS = 17
MOST_INTERRUPTIONS = 60
RUN_S = 120.0


def document(data: Path, kinds: Any = None) -> dict[str, Any]:
    values = tiny_federation.document(data, "fedproto", run={"rounds": 2}, training={"local_steps": 2})
    clients = {
        name: {**table, **({"model": KINDS[name]} if name in (KINDS if kinds is None else kinds) else {})}
        for name, table in values["clients"].items()
    }
    return {**values, "method": {"share_model": False}, "clients": clients}


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    simulated(document(data), folder)
    return folder


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.5")
        yield federation


def test_clients_of_two_kinds_share_prototypes_and_the_run_says_their_kinds(data: Path, undisturbed: Path) -> None:
    manifest = json.loads((undisturbed / "run.json").read_text())
    assert {name: entry["model_kind"] for name, entry in manifest["clients"].items()} == SAID
    metrics = [json.loads(line) for line in (undisturbed / "metrics.jsonl").read_text().splitlines()]
    config = parse_run_config(tiny_federation.run_document(document(data)))
    first = sha256_hex(to_bytes(state_arrays(build_model(config.model, len(tiny_federation.CLASSES), 32, 0))))
    assert {line["model_sha256"] for line in metrics} == {first}, "the global model stays the first"
    assert sorted(metrics[-1]["loss"]) == ["ce", "proto"]
    reports = [json.loads(line) for line in (undisturbed / EVALUATIONS).read_text().splitlines()]
    assert {counts["model"] for report in reports for counts in report["counts"]} == {"local"}


def test_other_kinds_give_other_bytes_and_no_kind_is_said_where_there_is_none(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    simulated(document(data, kinds=("right",)), tmp_path / "one")
    assert hashed(tmp_path / "one") != hashed(undisturbed)
    manifest = json.loads((tmp_path / "one" / "run.json").read_text())
    assert [manifest["clients"][name].get("model_kind") for name in ("left", "right")] == [None, "cnn5"]


def test_interrupted_in_every_task_equals_uninterrupted(data: Path, tmp_path: Path, undisturbed: Path) -> None:
    num_interruptions, asked = 0, 0

    def stop_now() -> bool:
        nonlocal asked
        asked += 1
        return asked > ASKS_BETWEEN_INTERRUPTIONS

    while not (tmp_path / "parts" / "run.json").exists():
        assert num_interruptions < MOST_INTERRUPTIONS, "it does not get on"
        asked = 0
        try:
            simulated(document(data), tmp_path / "parts", should_stop=stop_now)
        except Interrupted:
            num_interruptions += 1
    assert num_interruptions > 1
    assert hashed(tmp_path / "parts") == hashed(undisturbed)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_processes_that_are_killed_and_started_again_give_the_bytes_of_the_simulation(
    data: Path, undisturbed: Path, federation: Federation, control: RunControl
) -> None:
    for client, flags in FLAGS.items():
        federation.start_trainer(client, f"npz:{data / client}.npz", *flags)
    run_id = control.create(tiny_federation.run_document(document(data))).run_id
    eventually(lambda: len(lines_of(control, run_id)) >= 1, "round 1 commits", RUN_S)
    for name in ("trainer-left", "aggregator", "trainer-right"):
        federation.processes[name].kill()
    federation.start_aggregator()
    for name in ("trainer-left", "trainer-right"):
        federation.processes[name].start()
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", RUN_S)
    assert lines_of(control, run_id) == (undisturbed / "metrics.jsonl").read_text().splitlines()
    federation.start_gateway()
    clients = federation.ask("/v1/clients")["clients"]
    assert {client["client_id"]: client["model_kind"] for client in clients} == SAID
    manifest = federation.ask(f"/v1/runs/{run_id}/manifest")
    assert {name: entry["model_kind"] for name, entry in manifest["clients"].items()} == SAID
    kept = ClientStates(federation.folder / "trainer-left" / "client-state" / "left").state(run_id)
    assert kept is None or "projection.weight" in kept, "dropped once the run has ended"


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_run_that_averages_models_goes_on_without_a_client_with_its_own_kind_and_says_why(
    data: Path, federation: Federation, control: RunControl
) -> None:
    federation.start_trainer("left", f"npz:{data / 'left'}.npz")
    federation.start_trainer("right", f"npz:{data / 'right'}.npz", *FLAGS["right"])
    values = tiny_federation.document(data, "fedavg", run={"rounds": 2}, training={"local_steps": 2})
    values["quorum"] = {"min_clients": 1, "deadline_s": 0}
    run_id = control.create(tiny_federation.run_document(values)).run_id
    control.end_of(run_id)
    federation.start_gateway()
    # The run's history keeps what the client could not do; once the run has ended, that hinders the client no more.
    events = federation.ask(f"/v1/runs/{run_id}/events", Accept="application/json")["events"]
    problem = next(event["data"] for event in events if event["type"] == "client_problem")
    assert (problem["reason"], problem["is_fatal"]) == ("MODEL_KIND_REFUSED", True)

    def can_right_work() -> bool:
        found = federation.ask("/v1/clients")["clients"]
        now = next(each["problem"] for each in found if each["client_id"] == "right")
        return now is None or not now["is_fatal"]

    eventually(can_right_work, "the client can work", 20)
    assert problem["detail"] == (
        "client right has its own kind of model, cnn5: method fedavg averages models, so every client has the run's"
    )
    assert "--model" in problem["hint"]
    open_run = {**tiny_federation.run_document(values), "run": {"method": "fedavg", "rounds": 1, "min_clients": 1}}
    open_run["quorum"] = {}
    run_id = control.create(open_run).run_id
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "it waits for nobody else", RUN_S)


def lines_of(control: RunControl, run_id: str) -> list[str]:
    return [line for line in control.metrics_lines(run_id) if line]
