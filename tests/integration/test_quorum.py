"""Sites that hang, are killed and come back: rounds go on within the stated bound, and REST says without whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from fedplcc.shared.identity.names import Role
from tests.support.federation.numpy_client import a_document
from tests.support.federation.processes import Federation, Process, eventually

HEARTBEAT_S = 0.2
LEASE_HEARTBEATS = 15
LEASE_S = LEASE_HEARTBEATS * HEARTBEAT_S
TICK_S = HEARTBEAT_S
DEADLINE_S, SILENCE_S = 1.0, LEASE_S
BUSY_S = 20.0
"""How late a tick or a heartbeat may come on a machine that does other things."""
RUN_S = 60.0


DOMAINS = {"ann": "north", "bob": "north", "zoe": "south"}


class Sites:
    """An aggregator, a gateway, and the sites ann and bob in the north and zoe in the south."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        federation.start_aggregator(
            "--heartbeat-interval-s", str(HEARTBEAT_S), "--lease-heartbeats", str(LEASE_HEARTBEATS)
        )
        federation.start_gateway()
        for name in ("ann", "bob"):
            self.start(name)

    def start(self, name: str, *flags: str) -> Process:
        identity = self.federation.identity_file(Role.CLIENT, name, self.federation.folder / f"site-{name}")
        arguments = ["tests.support.federation.numpy_site", self.federation.address, name, DOMAINS[name], *flags]
        arguments += ["--identity", str(identity)]
        process = self.federation.processes.get(name)
        if process is None:
            process = self.federation.processes[name] = Process(name, self.federation.folder, arguments)
        process.arguments = arguments
        process.start()
        return process

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.federation.ask(path, body)

    def begin(self, rounds: int, **quorum: Any) -> str:
        rule = {"deadline_s": DEADLINE_S, "silence_s": SILENCE_S, **quorum}
        document = a_document("fedplcc", ("ann", "bob", "zoe"), run={"rounds": rounds}, quorum=rule)
        return str(self.call("/v1/runs", document)["run_id"])

    def run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self.call(f"/v1/runs/{run_id}")
        return run

    def rounds(self, run_id: str) -> list[dict[str, Any]]:
        rounds: list[dict[str, Any]] = self.call(f"/v1/runs/{run_id}/rounds")["rounds"]
        return rounds

    def dropped(self, run_id: str, number: int) -> dict[str, str]:
        """Who was dropped from a round, as REST says it."""
        found = [current["dropped"] for current in self.rounds(run_id) if current["round"] == number]
        return {
            client["client_id"]: f"{client['reason']}: {client['detail']}" for dropped in found for client in dropped
        }

    def times(self, run_id: str) -> dict[tuple[str, int, str | None], float]:
        """When each thing happened first, by its type, round and client."""
        found: dict[tuple[str, int, str | None], float] = {}
        with self.federation.open(f"/v1/runs/{run_id}/events") as stream:
            data = [json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: ")]
        for event in data:
            if "type" in event:  # the last one is the run as it ended
                key = (event["type"], event["round"], event["client_id"] or None)
                found.setdefault(key, datetime.fromisoformat(event["time"]).timestamp())
        return found

    def is_connected(self, name: str) -> bool:
        clients = self.call("/v1/clients")["clients"]
        return any(client["client_id"] == name and client["is_connected"] for client in clients)

    def wait_until(self, run_id: str, status: str) -> dict[str, Any]:
        def is_so() -> dict[str, Any] | None:
            run = self.run(run_id)
            return run if run["status"] == status else None

        return eventually(is_so, f"the run is {status}", RUN_S)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        yield Sites(federation)


def test_a_round_goes_on_without_a_site_that_hangs_or_is_killed_and_with_it_when_it_is_back(sites: Sites) -> None:
    zoe = sites.start("zoe", "--stall", "1")
    run_id = sites.begin(rounds=2, min_clients=2)
    eventually(lambda: sites.dropped(run_id, 1) or None, "zoe is dropped", RUN_S)
    zoe.kill()
    sites.wait_until(run_id, "completed")
    sites.start("zoe")
    eventually(lambda: sites.is_connected("zoe"), "zoe is back", RUN_S)
    sites.call(f"/v1/runs/{run_id}/extend", {"rounds": 3})
    sites.wait_until(run_id, "completed")
    zoe.kill()

    assert sites.dropped(run_id, 1)["zoe"].startswith("silent: connected, but no progress since 20")
    assert sites.dropped(run_id, 2)["zoe"].startswith("lost: not connected")
    assert sites.dropped(run_id, 3) == {}
    rounds = {current["round"]: current for current in sites.rounds(run_id)}
    assert [rounds[number]["cohort"] for number in (1, 3)] == [["ann", "bob", "zoe"]] * 2
    assert rounds[1]["metrics"]["dropped"] == ["zoe"]
    assert rounds[1]["metrics"]["accuracy"]["south"] is None
    assert rounds[3]["metrics"]["accuracy"]["south"] is not None
    assert (rounds[1]["metrics"]["num_examples"], rounds[3]["metrics"]["num_examples"]) == (24, 36)

    times = sites.times(run_id)
    silent_s = times["client_dropped", 1, "zoe"] - times["round_opened", 1, None]
    lost_s = times["client_dropped", 2, "zoe"] - times["round_opened", 2, None]
    # Round 1: zoe was given its task as the round opened, and its first heartbeat about it was its last progress.
    assert max(DEADLINE_S, SILENCE_S) <= silent_s <= SILENCE_S + HEARTBEAT_S + TICK_S + BUSY_S
    assert DEADLINE_S <= lost_s <= max(DEADLINE_S, LEASE_S) + TICK_S + BUSY_S
    assert times["round_aggregating", 1, None] == pytest.approx(times["client_dropped", 1, "zoe"], abs=1e-6)


def test_a_run_that_needs_every_domain_waits_for_the_only_site_of_one_and_says_so(sites: Sites) -> None:
    zoe = sites.start("zoe", "--stall", "1")
    run_id = sites.begin(rounds=1, every_domain=True)
    eventually(lambda: sites.run(run_id)["round"] >= 1, "round 1 is open", RUN_S)
    zoe.kill()
    reason = eventually(lambda: sites.run(run_id)["reason"] or None, "the run says what it waits for", RUN_S)
    assert reason.startswith("round 1 has no quorum, no client of domain south; missing: zoe (")
    assert sites.run(run_id)["status"] == "running"
    assert sites.dropped(run_id, 1) == {}
    sites.start("zoe")
    sites.wait_until(run_id, "completed")
    zoe.kill()
    assert sites.dropped(run_id, 1) == {}
    assert sites.rounds(run_id)[1]["metrics"]["accuracy"]["south"] is not None


def test_a_run_that_is_to_fail_without_a_quorum_does_within_the_bound(sites: Sites) -> None:
    zoe = sites.start("zoe", "--stall", "1")
    run_id = sites.begin(rounds=1, min_clients=3, on_no_quorum="fail")
    run = sites.wait_until(run_id, "failed")
    zoe.kill()
    assert run["reason"].startswith("round 1 has no quorum, 2 of the 3 clients that it needs; missing: zoe (")
    times = sites.times(run_id)
    failed_s = times["run_failed", 1, None] - times["round_opened", 1, None]
    assert DEADLINE_S <= failed_s <= SILENCE_S + HEARTBEAT_S + TICK_S + BUSY_S
