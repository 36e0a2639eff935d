"""A federation over a network, by TLS: an aggregator, two trainers and a gateway on three hosts with addresses of their own.

One data host is on the aggregator's network. The other one is behind a router that lets it dial out: nothing on the
aggregator's network has a route to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Process, eventually
from tests.support.federation.remote_runs import RUN_S, RemoteRuns, key_of
from tests.support.federation.simulations import hashed, simulated
from tests.support.hosts.namespaces import Host, Network, need_namespaces

HUB, NEAR, FAR = "192.0.2.10", "192.0.2.21", "198.51.100.22"
ROUTER = "198.51.100.1"
PORT, ENROL_PORT = 50051, 50053
NEAR_CLIENT, FAR_CLIENT = tiny_federation.CLIENTS
GATEWAY = "http://127.0.0.1:8080"


class Deployment:
    """The hosts, their processes, and a person at the aggregator's host."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        network.add_switch("office", "192.0.2.1")
        network.add_switch("clinic", ROUTER)
        self.hub = network.add_host("hub", HUB, "office")
        self.near = network.add_host("near", NEAR, "office")
        self.far = network.add_host("far", FAR, "clinic")
        self.router = network.add_relay((ROUTER, PORT), (HUB, PORT))
        network.add_relay((ROUTER, ENROL_PORT), (HUB, ENROL_PORT))
        self.processes: list[Process] = []

    @property
    def runs(self) -> RemoteRuns:
        """The gateway, with the key that `fedplcc login` kept."""
        return RemoteRuns(self.hub, GATEWAY, key_of(self.folder / "user"))

    def start(self) -> None:
        state = ("--state-dir", str(self.folder / "fedplcc-state" / "aggregator"))
        self._start(self.hub, "aggregator", "--host", HUB, *state, "--heartbeat-interval-s", "0.2")
        eventually(
            lambda: (self.folder / "fedplcc-state" / "aggregator" / "endpoint.json").exists(), "it serves", RUN_S
        )
        self.types(self.hub, "login")
        self._start(self.hub, "gateway", "--aggregator", f"{HUB}:{PORT}")
        self._start_trainer(self.near, NEAR_CLIENT, HUB)
        self._start_trainer(self.far, FAR_CLIENT, ROUTER)

    def types(self, host: Host, *arguments: str, given: str = "") -> str:
        """What a command prints that a person types on a host."""
        environment = {
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder / "user"),
        }
        command = [sys.executable, "-m", "fedplcc", *arguments]
        done = host.run(command, cwd=self.folder, env=environment, timeout_s=RUN_S, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_joined(self) -> None:
        def everybody() -> bool:
            for process in self.processes:
                assert process.is_running, f"{process.name} ended:\n{process.log()}"
            return set(self.runs.connected()) == set(tiny_federation.CLIENTS)

        eventually(everybody, "both trainers have joined", RUN_S)

    def end(self) -> None:
        for process in reversed(self.processes):
            if process.is_running:
                process.kill()

    def scraped(self) -> dict[str, set[str]]:
        """Names of the series that the services export, each with the labels that it has."""
        found: dict[str, set[str]] = {}
        key = self.types(self.hub, "key", "create", "prometheus", "--scope", "metrics").strip()
        pages = [(self.hub, "http://127.0.0.1:9464"), (self.hub, GATEWAY), (self.near, "http://127.0.0.1:9465")]
        for host, url in pages:
            shown = {"Authorization": f"Bearer {key}"} if url == GATEWAY else {}
            for family in text_string_to_metric_families(host.fetch(f"{url}/metrics", headers=shown).decode()):
                for sample in family.samples:
                    found.setdefault(sample.name, set()).update(sample.labels)
        return found

    def _start_trainer(self, host: Host, client: str, address: str) -> None:
        state = ("--state-dir", str(self.folder / f"trainer-{client}"))
        invitation = self.types(self.hub, "invite", client, "--address", address)
        self.types(host, "join", *state, given=invitation)
        data = f"npz:{self.folder / client}.npz"
        self._start(host, "trainer", "--data", data, "--device", "cpu", "--metrics-port", "9465", *state)

    def _start(self, host: Host, package: str, *flags: str) -> None:
        process = Process(f"{package}-{host.name}", self.folder, [package, *flags], host.command_prefix)
        self.processes.append(process)
        process.start()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    tiny_federation.write_data(folder)
    return folder


@pytest.fixture(scope="module")
def values(folder: Path) -> dict[str, Any]:
    return tiny_federation.document(folder, data={"image_size": 16}, training={"local_steps": 60}, run={"rounds": 2})


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Deployment]:
    need_namespaces()
    with Network() as network:
        deployment = Deployment(folder, network)
        try:
            deployment.start()
            yield deployment
        finally:
            deployment.end()


@pytest.fixture(scope="module")
def expected(running: Deployment, folder: Path, values: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of what a simulation of the same configuration leaves; made while the trainers start."""
    simulated(values, folder / "simulation")
    running.wait_joined()
    return hashed(folder / "simulation")


@pytest.fixture
def deployment(running: Deployment, expected: dict[str, str]) -> Iterator[Deployment]:
    yield running
    for process in running.processes:  # shown where the test failed
        print(f"\n--- {process.name}\n{process.log()[-4000:]}")


def test_a_run_over_three_hosts_ends_in_the_bytes_of_a_simulation(
    deployment: Deployment, values: dict[str, Any], expected: dict[str, str]
) -> None:
    assert deployment.runs.end_of(deployment.runs.start(tiny_federation.run_document(values))) == expected
    assert deployment.router.num_connections > 0, "the far trainer came by the router"


def test_a_cable_that_is_out_in_the_middle_of_a_round_changes_no_byte(
    deployment: Deployment, values: dict[str, Any], expected: dict[str, str]
) -> None:
    run_id = deployment.runs.start(tiny_federation.run_document(values))

    def trains() -> bool:
        client = deployment.runs.clients()[NEAR_CLIENT]
        return bool(client["run_id"] == run_id and client["activity"] == "training")

    eventually(trains, "the near trainer trains", RUN_S)
    deployment.near.unplug()
    eventually(lambda: deployment.runs.connected() == [FAR_CLIENT], "the near trainer is missed", RUN_S)
    run = deployment.runs.get(run_id)
    assert (run["status"], run["round"]) == ("running", 1), "the round waits for it"
    deployment.near.plug()
    assert deployment.runs.end_of(run_id) == expected


def test_nothing_listens_where_others_could_reach_a_trainer(deployment: Deployment) -> None:
    for host in (deployment.near, deployment.far):
        assert {(address, port) for address, port in host.listening() if not address.startswith("127.")} == set()
        for _address, port in host.listening():
            assert not deployment.hub.can_connect(host.address, port, timeout_s=0.2)
    open_ports = {(HUB, PORT), (HUB, ENROL_PORT)}
    assert {
        (address, port) for address, port in deployment.hub.listening() if not address.startswith("127.")
    } == open_ports
    assert all(deployment.near.can_connect(*each) for each in open_ports)
    assert not any(deployment.far.can_connect(*each, timeout_s=0.2) for each in open_ports), "but by relay"


def test_a_prometheus_on_the_aggregator_s_host_reads_what_every_client_did(deployment: Deployment) -> None:
    exported = deployment.scraped()
    assert {"run", "domain"} <= exported["fedplcc_domain_accuracy_ratio"]
    assert "client" in exported["fedplcc_client_connected"], "also of the one that nothing there can scrape"
    assert exported.keys() >= {"fedplcc_http_requests_total", "fedplcc_training_batch_seconds_count"}
