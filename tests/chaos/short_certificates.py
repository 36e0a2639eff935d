"""Certificates of a minute: members and aggregator renew them in the middle of transfers, and no byte is sent again.

    python -m tests.chaos.short_certificates          # certificates of 60 s

A real aggregator, two real trainers and a gateway, each a process of its own that has joined by an invitation. Each member
dials through a link (fault_proxy.py) that is so slow that every transfer of a model takes longer than a certificate lives.
One who follows the run's events at the gateway all the time, and asks for nothing else, must not notice a renewal. The run
must end in the simulation's bytes, and each model must have passed each link once.

Then, in the middle of another run, the aggregator is away until every certificate has ended and as long again. It comes
back, and nobody else is told: trainers and gateway must find it by themselves, and the run must end in the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from shared.identity.credentials import IDENTITY_FILE, Credentials
from shared.identity.names import Role
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.scenarios import Operator, Outcome
from tests.support.federation import tiny_federation
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.identity.joined_federation import admit, new_key

FEWEST_RENEWALS = 3
TRANSFER_LIVES, LONGEST_TRANSFER_S = 1.1, 45.0
"""Length of a model's transfer, in lives of a certificate, and at most: longer than half a life, after which a certificate
is renewed. In a minute without an answer a connection counts as dead; on so slow a link answers wait behind the bytes."""
MODEL_BYTES = 1_036_692
"""The tiny federation's model."""
AWAY_LIVES = 2.0
LINK_S = 0.1
"""Time between two looks at what passes a link."""
FRAMING_BYTES_PER_S = 4000
"""Bytes of a link in a second that heartbeats, renewals and their handshakes may take."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of both runs."""

    renewals: Mapping[str, int]
    """Renewals of each process in the first run."""
    in_transfer: Mapping[str, int]
    """Those of each trainer in the middle of a transfer."""
    sent_bytes: int
    """Bytes of models that trainers sent in the first run."""
    due_bytes: int
    """Those that had to be sent."""
    link_bytes: int
    """Bytes that passed the trainers' links."""
    due_link_bytes: int
    """Most that may have passed them: each model once each way, and what is around it."""
    resumed: int
    """Transfers that broke and went on."""
    retried: Sequence[str]
    """Calls that were tried again, and why."""
    is_same: bool
    """Whether the first run ended in the simulation's bytes."""
    streams: int
    """Streams that the one who followed the events needed."""
    is_same_after_absence: bool
    back_s: float
    """Seconds from the aggregator's return until all members had certificates that hold."""

    def violations(self) -> list[str]:
        """What should not be, in words."""
        few = {name: count for name, count in self.renewals.items() if count < FEWEST_RENEWALS}
        outside = {name: count for name, count in self.in_transfer.items() if count < FEWEST_RENEWALS}
        found = {
            f"too few renewals: {few}": few,
            f"too few renewals in the middle of transfers: {outside}": outside,
            f"{self.sent_bytes - self.due_bytes} bytes of models were sent again": self.sent_bytes != self.due_bytes,
            f"{self.link_bytes} bytes passed where {self.due_link_bytes} may": self.link_bytes > self.due_link_bytes,
            f"{self.resumed} transfers broke": self.resumed,
            f"calls were tried again: {self.retried}": self.retried,
            "the run did not end in the simulation's bytes": not self.is_same,
            f"who followed the events needed {self.streams} streams": self.streams != 1,
            "the run did not end in the simulation's bytes after the absence": not self.is_same_after_absence,
        }
        return [sentence for sentence, holds in found.items() if holds]


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
        return [_time_of(line) for line in self.said(name, event)]

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


class Follower:
    """Somebody who looks at a run's events in a thread, opens another stream where one ends, and asks for nothing else."""

    def __init__(self, url: str, key: str, run_id: str) -> None:
        """Begin to follow."""
        self.num_streams = 0
        self.types: deque[str] = deque()
        self._url, self._headers = f"{url}/v1/runs/{run_id}/events", {"Authorization": f"Bearer {key}"}
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)
        self._thread.start()

    @property
    def has_seen_the_end(self) -> bool:
        return "run_completed" in self.types

    def _follow(self) -> None:
        last = "0"
        while not self.has_seen_the_end:
            self.num_streams += 1
            headers = {**self._headers, "Accept": "text/event-stream", "Last-Event-ID": last}
            try:
                with httpx.stream("GET", self._url, headers=headers, timeout=None) as answer:
                    for line in answer.iter_lines():
                        field, _, value = line.partition(": ")
                        if field == "id":
                            last = value
                        elif field == "event":
                            self.types.append(value)
                            if self.has_seen_the_end:
                                return
            except httpx.TransportError:
                time.sleep(LINK_S)


class _Watch:
    """What passes the trainers' links, over the time."""

    def __init__(self, links: Mapping[str, FaultProxy]) -> None:
        self._links = links
        self._seen: dict[str, list[tuple[float, int]]] = {name: [] for name in links}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def is_moving(self, name: str, at: float, bytes_per_s: float) -> bool:
        """Whether the link was in use in the second before this time and in the one after it."""
        return all(self._passed(name, begin, begin + 1) >= bytes_per_s / 2 for begin in (at - 1, at))

    def _passed(self, name: str, begin: float, end: float) -> int:
        within = [count for time_, count in self._seen[name] if begin <= time_ <= end]
        return within[-1] - within[0] if within else 0

    def _look(self) -> None:
        while not self._is_over.wait(LINK_S):
            for name, link in self._links.items():
                self._seen[name].append((time.time(), link.num_bytes))


def run(folder: Path, *, valid_s: float) -> Result:
    """Run a federation with certificates of so many seconds, then one whose aggregator is away."""
    transfer_s = min(TRANSFER_LIVES * valid_s, LONGEST_TRANSFER_S)
    bytes_per_s = MODEL_BYTES / transfer_s
    federation = ShortLived(folder, valid_s)
    values = tiny_federation.document(folder, "fedavg", run={"rounds": 1})
    lines = tiny_federation.simulated(folder / "simulation", values)
    trainers = tiny_federation.CLIENTS
    with federation.running():
        key = new_key(federation.state)
        links = {name: federation.links[name] for name in trainers}
        for link in links.values():
            link.up.bytes_per_s = link.down.bytes_per_s = bytes_per_s
        with closing(Operator(federation.url, "first", key)) as operator, _Watch(links) as watch:
            before = {name: federation.scraped(name) for name in trainers if _has_metrics(federation, name)}
            assert len(before) == len(trainers)
            link_before, began = sum(link.num_bytes for link in links.values()), time.time()
            run_id = operator.create(tiny_federation.run_document(values))
            follower = Follower(federation.url, key, run_id)
            transfers = 2 * len(trainers) + 2
            eventually(lambda: follower.has_seen_the_end, "the run ends", 120 + transfers * 2 * transfer_s)
            ended = time.time()
        counted = {name: federation.scraped(name) for name in trainers}
        link_bytes = sum(link.num_bytes for link in links.values()) - link_before
        renewals = {
            name: [at for at in federation.renewals(name) if began <= at <= ended] for name in federation.processes
        }
        moved = {way: int(_sum(counted, "fedplcc_transfer_bytes_total", way, "model")) for way in ("sent", "received")}
        retried = [
            f"{line['operation']}: {line['reason']}, {line['detail']}"
            for name in trainers
            for line in federation.said(name, "retrying")
        ]
        with closing(Operator(federation.url, "between", key)) as operator:
            is_same = _is_simulated(operator, run_id, lines)
        in_transfer = {name: sum(watch.is_moving(name, at, bytes_per_s) for at in renewals[name]) for name in trainers}
        for link in links.values():
            link.up.bytes_per_s = link.down.bytes_per_s = float("inf")
        is_same_after_absence, back_s = _with_absence(federation, key)
    return Result(
        renewals={name: len(times) for name, times in renewals.items()},
        in_transfer=in_transfer,
        sent_bytes=moved["sent"],
        due_bytes=MODEL_BYTES * (1 + len(trainers)),
        link_bytes=link_bytes,
        due_link_bytes=int(sum(moved.values()) * 1.01 + len(trainers) * FRAMING_BYTES_PER_S * (ended - began)),
        resumed=int(_sum(counted, "fedplcc_transfers_resumed_total")),
        retried=retried,
        is_same=is_same,
        streams=follower.num_streams,
        is_same_after_absence=is_same_after_absence,
        back_s=back_s,
    )


def _with_absence(federation: ShortLived, key: str) -> tuple[bool, float]:
    """Run once more with an absence in the middle; returns whether the bytes are the same, and how long all needed."""
    folder = federation.folder
    values = tiny_federation.document(folder, "fedavg", run={"rounds": 2}, training={"local_steps": 40})
    lines = tiny_federation.simulated(folder / "simulation-of-absence", values)
    members = (*tiny_federation.CLIENTS, "gateway")
    with closing(Operator(federation.url, "second", key)) as operator:
        run_id = operator.create(tiny_federation.run_document(values))
        operator.wait_round(run_id, 1)
    federation.aggregator.kill()
    ends = max(federation.held(name).not_after for name in members)
    until = ends + (AWAY_LIVES - 1) * federation.valid_s
    eventually(lambda: time.time() >= until, "the absence ends", 4 * AWAY_LIVES * federation.valid_s)
    federation.start_aggregator()
    began = time.time()

    def are_back() -> bool:
        for name, process in federation.processes.items():
            assert process.is_running, f"{name} ended:\n{process.log()[-3000:]}"
        return all(federation.held(name).not_after > time.time() for name in members)

    eventually(are_back, "all members have certificates that hold", 180)
    back_s = time.time() - began
    with closing(Operator(federation.url, "third", key)) as operator:
        operator.wait(run_id, "completed")
        return _is_simulated(operator, run_id, lines), back_s


def _is_simulated(operator: Operator, run_id: str, lines: Sequence[dict[str, Any]]) -> bool:
    found = operator.ask("GET", f"/v1/runs/{run_id}/metrics.jsonl").decode().splitlines()
    ending: Outcome = operator.ending(run_id)
    return [json.loads(line) for line in found] == list(lines) and ending["model"] == lines[-1]["model_sha256"]


def _has_metrics(federation: ShortLived, name: str) -> bool:
    ready: Callable[[], bool] = lambda: '"metrics_served"' in federation.processes[name].log()  # noqa: E731
    return eventually(ready, f"{name} serves its counters")


def _sum(counted: Mapping[str, Mapping[tuple[str, ...], float]], name: str, *labels: str) -> float:
    wanted = (name, *labels)
    return sum(
        value for samples in counted.values() for sample, value in samples.items() if sample[: len(wanted)] == wanted
    )


def _time_of(line: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run with certificates of a minute, print what came of it, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.short_certificates", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--valid-s", type=float, default=60.0, help="life of a certificate; 60 if not given")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="short-certificates-") as folder:
        result = run(Path(folder), valid_s=options.valid_s)
    for name, count in result.renewals.items():
        within = result.in_transfer.get(name)
        print(f"{name:>12}  {count} renewals" + ("" if within is None else f", {within} in the middle of a transfer"))
    print(
        f"{result.sent_bytes - result.due_bytes} bytes of models sent again of {result.sent_bytes}, "
        f"{result.resumed} transfers broke, {len(result.retried)} calls tried again, {result.streams} stream of events"
    )
    print(f"after the absence all members were back {result.back_s:.1f} s after the aggregator")
    for violation in result.violations():
        print(f"violation: {violation}", file=sys.stderr)
    return 1 if result.violations() else 0


if __name__ == "__main__":
    sys.exit(main())
