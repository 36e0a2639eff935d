"""A federation of real processes whose certificates soon end, each member behind a link of its own."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.identity.joined_federation import admit


class ShortLived:
    """A federation whose certificates soon end."""

    def __init__(self, folder: Path, valid_s: float) -> None:
        """Prepare the processes and links; none runs."""
        self.folder, self.valid_s = folder, valid_s
        self.state = folder / "aggregator"
        self.address = f"127.0.0.1:{free_port()}"
        self.gateway_port = free_port()
        self.links = {name: FaultProxy(self.address) for name in (*tiny_federation.CLIENTS, "gateway")}
        tiny_federation.write_data(folder)
        self.aggregator = Process(
            "aggregator",
            folder,
            [
                "aggregator",
                *("--state-dir", str(self.state), "--port", self.address.rpartition(":")[2]),
                *("--enrol-port", str(free_port()), "--metrics-port", "0"),
                *(
                    "--certificate-valid-s",
                    str(valid_s),
                    "--heartbeat-interval-s",
                    "0.5",
                    "--max-chunk-bytes",
                    "65536",
                    "--max-inline-bytes",
                    "65536",
                ),
            ],
        )
        self.gateway = Process(
            "gateway",
            folder,
            [
                "gateway",
                *("--state-dir", str(folder / "gateway"), "--join-file", str(self.state / "gateway.join")),
                *("--port", str(self.gateway_port)),
            ],
        )
        self.trainers = {
            name: Process(
                f"trainer-{name}",
                folder,
                [
                    "trainer",
                    *("--state-dir", str(self.member_folder(name)), "--device", "cpu", "--log-level", "debug"),
                    *("--client", name, "--data", f"npz:{folder / name}.npz"),
                ],
            )
            for name in tiny_federation.CLIENTS
        }

    @property
    def processes(self) -> dict[str, Process]:
        return {"aggregator": self.aggregator, "gateway": self.gateway, **self.trainers}

    def member_folder(self, name: str) -> Path:
        return self.folder / (name if name == "gateway" else f"trainer-{name}")

    def held(self, name: str) -> Credentials:
        """What a member holds now."""
        return Credentials.load(self.member_folder(name) / IDENTITY_FILE)

    @property
    def url(self) -> str:
        """Of the gateway."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everybody joins and runs within the block."""
        with ExitStack() as stack:
            stack.callback(self._end)
            for link in self.links.values():
                stack.enter_context(link)
            self.start_aggregator()
            for name in tiny_federation.CLIENTS:
                folder = self.member_folder(name)
                admit(self.state, Role.CLIENT, name, folder, domain=name, aggregator=self.links[name].address)
            admit(
                self.state, Role.GATEWAY, "console", self.folder / "gateway", aggregator=self.links["gateway"].address
            )
            for name, process in self.processes.items():
                if name != "aggregator":
                    flag = ["--aggregator", self.links[name].address]
                    process.arguments += flag
                    process.start()
            try:
                eventually(self._is_ready, "the gateway is ready")
                yield
            except BaseException:
                for process in self.processes.values():
                    print(f"--- {process.name}\n{process.log()[-4000:]}")
                raise

    def start_aggregator(self) -> None:
        """Start it, or start it again, and wait until it serves."""
        endpoint = self.state / "endpoint.json"
        endpoint.unlink(missing_ok=True)
        self.aggregator.start()

        def is_up() -> bool:
            assert self.aggregator.is_running, self.aggregator.log()
            return endpoint.exists()

        eventually(is_up, "the aggregator serves")

    def renewals(self, name: str) -> list[float]:
        """Times at which a process has renewed its own certificate, in seconds since the epoch."""
        event = "own_certificate_renewed" if name == "aggregator" else "certificate_renewed"
        return [datetime.fromisoformat(line["timestamp"]).timestamp() for line in self.said(name, event)]

    def scraped(self, name: str) -> dict[tuple[str, ...], float]:
        """A trainer's counters by their names and labels."""
        port = self.said(name, "metrics_served")[-1]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, *sample.labels.values()): sample.value for sample in samples}

    def said(self, name: str, event: str) -> list[dict[str, Any]]:
        """A process's log lines of this event."""
        lines = self.processes[name].log().splitlines()
        said = [json.loads(line) for line in lines if f'"{event}"' in line]
        return [line for line in said if line["event"] == event]

    def _is_ready(self) -> bool:
        assert self.gateway.is_running, self.gateway.log()
        try:
            return bool(httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200)
        except httpx.TransportError:
            return False

    def _end(self) -> None:
        for process in self.processes.values():
            if process.is_running:
                process.kill()
