"""Real trainers and a real aggregator, killed, stopped, paused and started again: the bytes are the undisturbed ones."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.federation import tiny_federation
from tests.support.federation.processes import Federation, eventually

RUN_S = 120.0
"""Bound on a whole tiny run on a busy machine."""


class Rest:
    """A person's hand on the gateway."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.federation.ask(path, body, method=method)

    def start(self, values: dict[str, Any]) -> str:
        return str(self.call("POST", "/v1/runs", tiny_federation.run_document(values))["run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.call("GET", f"/v1/runs/{run_id}")
        return run

    def activities(self) -> dict[str, str]:
        return {client["client_id"]: client["activity"] for client in self.call("GET", "/v1/clients")["clients"]}

    def metrics(self, run_id: str) -> list[dict[str, Any]]:
        with self.federation.open(f"/v1/runs/{run_id}/metrics.jsonl") as answer:
            return [json.loads(line) for line in answer]

    def wait(self, run_id: str, status: str) -> dict[str, Any]:
        def has_status() -> dict[str, Any] | None:
            run = self.run(run_id)
            assert run["status"] not in ("failed",) or status == "failed", run["reason"]
            return run if run["status"] == status else None

        return eventually(has_status, f"run {run_id} is {status}", RUN_S)

    def wait_training(self, run_id: str, number: int, client_id: str = "") -> None:
        """Until this client, or any, trains in this round or a later one."""

        def trains() -> bool:
            activities = self.activities()
            training = {name for name, activity in activities.items() if activity == "training"}
            return self.run(run_id)["round"] >= number and (client_id in training if client_id else bool(training))

        eventually(trains, f"somebody trains in round {number}", RUN_S)


def flip_a_committed_update(federation: Federation, run_id: str, number: int, client_id: str) -> None:
    """Flip the last bit of each blob that a client has committed in a round which is not folded yet."""
    database = f"file:{federation.state / 'aggregator.sqlite'}?mode=ro"

    def committed() -> set[str] | None:
        with closing(sqlite3.connect(database, uri=True)) as connection:
            query = "SELECT * FROM updates WHERE run_id = ? AND round = ? AND client_id = ?"
            found = connection.execute(query, (run_id, number, client_id)).fetchall()
        return set(re.findall(r"[0-9a-f]{64}", str(found))) or None

    blobs = [federation.state / "blobs" / sha256[:2] / sha256 for sha256 in eventually(committed, "an update", RUN_S)]
    stored = [path for path in blobs if path.is_file()]
    assert stored
    for path in stored:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Federation]:
    """An aggregator, two trainers and a gateway that live through all tests of this module, as deployed ones do."""
    with Federation(tmp_path_factory.mktemp("federation")) as running:
        running.start_aggregator("--heartbeat-interval-s", "0.3")
        for name in tiny_federation.CLIENTS:
            running.start_trainer(name, f"npz:{data / name}.npz")
        running.start_gateway()
        yield running


@pytest.fixture
def rest(federation: Federation) -> Iterator[Rest]:
    """The gateway; runs that a test leaves open are stopped, and a failed test shows the logs."""
    rest = Rest(federation)
    yield rest
    for run in rest.call("GET", "/v1/runs")["runs"]:
        if run["status"] not in ("stopped", "completed", "failed"):
            rest.call("POST", f"/v1/runs/{run['run_id']}/stop")
            rest.wait(run["run_id"], "stopped")


@pytest.mark.parametrize(
    ("method", "hyper", "first_killed_in"),
    [("fedplcc", {}, 1), ("moon", {}, 2), ("fedproto", {"share_model": False}, 2)],
)
def test_processes_that_are_killed_change_no_byte(
    federation: Federation,
    rest: Rest,
    data: Path,
    tmp_path: Path,
    method: str,
    hyper: dict[str, Any],
    first_killed_in: int,
) -> None:
    """SIGKILL of a trainer in the middle of its training, where it keeps a state when it has one to lose, then of the
    aggregator. While the first is away in a first round, the bytes of the other's update change on the disk."""
    values = tiny_federation.document(data, method, training={"local_steps": 40})
    values["method"] = {**values.get("method", {}), **hyper}
    run_id = rest.start(values)
    victim = tiny_federation.CLIENTS[1]
    trainer = federation.processes[f"trainer-{victim}"]
    rest.wait_training(run_id, first_killed_in, victim)
    trainer.kill()
    if first_killed_in == 1:
        flip_a_committed_update(federation, run_id, 1, tiny_federation.CLIENTS[0])
    trainer.start()
    rest.wait_training(run_id, 2)
    federation.processes["aggregator"].kill()
    federation.start_aggregator()
    rest.wait(run_id, "completed")
    assert rest.metrics(run_id) == tiny_federation.simulated(tmp_path / "reference", values)
    types = [event["type"] for event in rest.call("GET", f"/v1/runs/{run_id}/events?after=0")["events"]]
    assert "run_recovered" in types
    assert ("update_damaged" in types) == (first_killed_in == 1)


def test_a_training_alone_that_is_killed_and_paused_changes_no_byte(
    federation: Federation, rest: Rest, data: Path, tmp_path: Path
) -> None:
    """SIGKILL of a trainer while it trains alone in the last evaluation, then a pause there with the aggregator killed."""
    values = tiny_federation.document(
        data,
        "fedavg",
        run={"rounds": 2},
        data={"validation_every": 3},
        training={"local_steps": 200},
        evaluation={"joining": True},
    )
    run_id, victim = rest.start(values), tiny_federation.CLIENTS[1]

    def trains_alone() -> bool:
        client = next(each for each in rest.call("GET", "/v1/clients")["clients"] if each["client_id"] == victim)
        is_last = rest.run(run_id)["round"] == 2
        return is_last and client["activity"] == "evaluating" and bool(0.1 < client["progress"] < 0.8)

    eventually(trains_alone, "the client trains alone", RUN_S)
    federation.processes[f"trainer-{victim}"].kill()
    federation.processes[f"trainer-{victim}"].start()
    eventually(trains_alone, "it does so again", RUN_S)
    rest.call("POST", f"/v1/runs/{run_id}/pause?now=true")
    federation.processes["aggregator"].kill()
    federation.start_aggregator()
    rest.call("POST", f"/v1/runs/{run_id}/resume")
    rest.wait(run_id, "completed")
    assert rest.metrics(run_id) == tiny_federation.simulated(tmp_path / "reference", values)


def test_a_paused_run_ends_in_the_unpaused_bytes(
    federation: Federation, rest: Rest, data: Path, tmp_path: Path
) -> None:
    """Paused between two rounds, and in the middle of training with the aggregator killed before it goes on."""
    values = tiny_federation.document(data, "fedavg", training={"local_steps": 30})
    run_id = rest.start(values)
    rest.wait_training(run_id, 1)
    rest.call("POST", f"/v1/runs/{run_id}/pause")
    paused = rest.wait(run_id, "paused")
    assert paused["phase"] == "committed"
    rest.call("POST", f"/v1/runs/{run_id}/resume")
    rest.wait_training(run_id, paused["round"] + 1)
    rest.call("POST", f"/v1/runs/{run_id}/pause?now=true")
    assert rest.run(run_id)["status"] == "paused"
    eventually(lambda: set(rest.activities().values()) == {"idle"}, "everybody is idle", 10)
    federation.processes["aggregator"].kill()
    federation.start_aggregator()
    assert rest.run(run_id)["status"] == "paused"
    rest.call("POST", f"/v1/runs/{run_id}/resume")
    rest.wait(run_id, "completed")
    assert rest.metrics(run_id) == tiny_federation.simulated(tmp_path / "reference", values)


def test_stop_in_the_middle_of_an_epoch_leaves_everybody_idle_within_two_seconds(rest: Rest, data: Path) -> None:
    values = tiny_federation.document(data, training={"local_steps": 1_000_000})
    elapsed: list[float] = []
    while not elapsed or (len(elapsed) < 3 and elapsed[-1] > 2.5):  # another machine's load is not our delay
        run_id = rest.start(values)
        eventually(lambda: set(rest.activities().values()) == {"training"}, "everybody trains", RUN_S)
        began = time.monotonic()
        first = rest.call("POST", f"/v1/runs/{run_id}/stop")
        eventually(lambda: set(rest.activities().values()) == {"idle"}, "everybody is idle", 30)
        elapsed.append(time.monotonic() - began)
        stopped = rest.wait(run_id, "stopped")
        assert first["status"] in ("stopping", "stopped")
    assert min(elapsed) <= 2.5, f"idle after {elapsed} s; 2 s and one batch are allowed"
    assert rest.call("POST", f"/v1/runs/{run_id}/stop")["status"] == "stopped"
    assert stopped["round"] == 1
    with rest.federation.open(f"/v1/runs/{run_id}/model") as answer:
        assert answer.status == 200  # the last committed round is kept: here round 0
    # Trainers are long-lived: the next run finds them waiting.
    again = rest.start(tiny_federation.document(data, "fedavg", run={"rounds": 1}))
    rest.wait(again, "completed")
