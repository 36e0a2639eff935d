"""The processes that a benchmark measures: on free ports, ended by their ids, gone with the benchmark if it is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.support.members import Members, Served
from fedplcc.aggregator.app import ENDPOINT_FILE
from fedplcc.local import die_with_parent
from fedplcc.shared.config.settings import environment_without_settings
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.identity.names import Role

ROOT = Path(__file__).parents[2]
START_S = 60.0
ANSWER_S = 300.0
"""How long a process may work on one request."""
END_S = 20.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that a benchmark talks to."""

    pid: int
    control: Connection

    def receive(self) -> Any:
        """The next line of its log.

        Raises:
            RuntimeError: It said nothing for too long, or ended.
        """
        if not self.control.poll(ANSWER_S):
            raise RuntimeError(f"process {self.pid} did not answer within {ANSWER_S:.0f} s")
        try:
            return self.control.recv()
        except EOFError:
            raise RuntimeError(f"process {self.pid} ended; its error is above") from None


def calls_of_trainers(metrics_port: int) -> Counter[str]:
    """Calls that trainers have made and that have ended, by method, as an aggregator counts them at its /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=ANSWER_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
    ended = [sample for sample in samples if sample.name == "grpc_server_handled_total" and sample.value]
    calls: Counter[str] = Counter()
    for sample in ended:
        if sample.labels["grpc_service"].endswith("RoundService"):
            calls[sample.labels["grpc_method"]] += int(sample.value)
    return calls


@contextmanager
def peer(target: Callable[..., None], *arguments: Any) -> Iterator[Peer]:
    """Run `target(control, *arguments)` in a process of its own; it ends when `control` does."""
    context = multiprocessing.get_context("spawn")  # never fork after gRPC was imported
    mine, its = context.Pipe()
    process = context.Process(target=target, args=(its, *arguments), daemon=True)
    process.start()
    its.close()
    assert process.pid is not None
    try:
        yield Peer(process.pid, mine)
    finally:
        mine.close()
        process.join(END_S)
        if process.is_alive():
            process.kill()
            process.join()


STATE = "state"
"""Folder of an aggregator's state below a benchmark's."""


@contextmanager
def aggregator(
    folder: Path, *flags: str, plain: bool = False, clients: Sequence[str] = ()
) -> Iterator[tuple[Served, int]]:
    """A real aggregator on a folder where an earlier one may have left its state; gives it and its process id.

    Args:
        folder: Folder of the benchmark.
        flags: More flags of the aggregator.
        plain: Whether plain text is spoken, where no key is asked for.
        clients: Members that are on its list from the start.
    """
    state = folder / STATE
    members = Members.of(state, plain=plain, clients=clients)
    (state / ENDPOINT_FILE).unlink(missing_ok=True)  # of one that was killed
    transport = ("--insecure",) if plain else ("--enrol-port", "0")
    arguments = ["aggregator", *transport, "--state-dir", str(state), "--port", "0", "--metrics-port", "0", *flags]
    log = folder / "aggregator.log"
    with _process(arguments, log) as process:
        endpoint = _endpoint(process, state / ENDPOINT_FILE, log)
        yield Served(f"127.0.0.1:{endpoint['port']}", members, endpoint["admin_socket"]), process.pid


@contextmanager
def gateway(folder: Path, served: Served) -> Iterator[str]:
    """A real gateway in front of an aggregator; gives its URL. Requests to it need headers of `served`."""
    log, state = folder / "gateway.log", folder / "gateway"
    transport: tuple[str, ...] = ("--insecure",)
    if served.members.state is not None:
        state.mkdir(mode=0o700, exist_ok=True)
        served.members.credentials(Role.GATEWAY, "gateway").save(state / IDENTITY_FILE)
        transport = ("--state-dir", str(state))
    with _process(["gateway", *transport, "--aggregator", served.address, "--port", "0"], log) as process:
        yield _url(process, log)


@contextmanager
def _process(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    service, *options = arguments
    command = [sys.executable, "-P", "-m", f"fedplcc.{service}", *options]
    guard = [sys.executable, "-I", "-S", str(Path(die_with_parent.__file__)), str(os.getpid())]
    environment = {**environment_without_settings(), "PYTHONPATH": str(ROOT)}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*guard, *command], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    """The gateway's address, read from its log."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if entry.get("event") == "gateway_ready":
                    return f"http://{entry['host']}:{entry['port']}"
        time.sleep(0.02)
    raise RuntimeError(f"the gateway did not start:\n{log.read_text()}")


def _endpoint(process: subprocess.Popen[bytes], endpoint: Path, log: Path) -> dict[str, Any]:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if endpoint.exists():
            found: dict[str, Any] = json.loads(endpoint.read_text())
            return found
        time.sleep(0.02)
    raise RuntimeError(f"the aggregator did not start:\n{log.read_text()}")
