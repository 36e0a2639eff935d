"""A fleet of up to 1,000 trainers that do no training: rounds, heartbeats and control calls of a real aggregator.

Each client has a connection of its own (fake_trainers.py). They share a few processes, and these share the machine with the
aggregator. A person follows the run's events, and another steers it through a real gateway: reads the run, lists the runs,
asks for a pause and withdraws it. At the end the aggregator is killed in the middle of a round, when 70 % of the updates are
committed, and started again on the same port: the clients of these updates must not be asked for them again.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.support.fake_trainers import act
from benchmarks.support.members import Served
from benchmarks.support.processes import ANSWER_S, Peer, aggregator, gateway, peer
from benchmarks.support.report import Row, cpu_seconds, finish, options
from benchmarks.support.trainers import create_run
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc

PROCESSES = 4
"""Processes of trainers."""
MODELS = {"tiny": 500, "0.5 M": 500_000}
"""Parameters by name; the tiny model has 2 kB of them."""
CLIENTS = (100, 300, 1000)
ROUNDS = 3
CONTROL_S = 0.1
"""Pause between two control calls."""
COMMITTED = 0.7
"""Share of a round's updates that are committed when the aggregator is killed."""


def main() -> None:
    """Measure every model and number of clients."""
    arguments = options(__doc__, _flags)
    sizes = arguments.clients or ([4] if arguments.quick else CLIENTS)
    rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
    models = arguments.model or (["tiny"] if arguments.quick else list(MODELS))
    rows = [measured(model, num_clients, rounds, plain=arguments.plain) for model in models for num_clients in sizes]
    finish("fleet", rows, arguments)


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, nargs="+", help=f"numbers of clients; {CLIENTS} if not given")
    parser.add_argument("--rounds", type=int, help=f"measured rounds of each run; {ROUNDS} if not given")
    parser.add_argument("--model", nargs="+", choices=list(MODELS), help="models; all if not given")


def measured(model: str, num_clients: int, rounds: int, *, plain: bool = False) -> Row:
    """Measure one model and number of clients; returns the row of the table."""
    names = [f"client-{index:04}" for index in range(num_clients)]
    with tempfile.TemporaryDirectory(prefix="fedplcc-fleet-") as name, ExitStack() as stack:
        folder, port = Path(name), str(_free_port())
        with aggregator(folder, "--port", port, plain=plain, clients=names) as (served, pid):
            begin = time.perf_counter()
            fleet = stack.enter_context(_fleet(served, names, MODELS[model]))
            joined_s = time.perf_counter() - begin
            url = stack.enter_context(gateway(folder, served))
            with served.open_channel() as channel:
                control = run_service_pb2_grpc.RunServiceStub(channel)
                row = _rounds(control, fleet, (url, served.new_headers()), pid, names, rounds)
                row |= {"lost leases": _num_lost(control)}
                half = _half_a_round(control, fleet, names)
            row["memory (MiB)"] = _peak_mib(pid)
            os.kill(pid, signal.SIGKILL)
        begin = time.perf_counter()
        with aggregator(folder, "--port", port, plain=plain) as (served, _pid), served.open_channel() as channel:
            request = health_pb2.HealthCheckRequest(service="fedplcc.v1.RoundService")
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=ANSWER_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            serving_s = time.perf_counter() - begin
            _ask(fleet, [])
            _follow(run_service_pb2_grpc.RunServiceStub(channel), half, "run_completed")
            found = _ask(fleet)
            asked_again = sum(seen.num_asked_again for seen in found)
            stack.close()  # while the aggregator is there to be told
    return (
        {"model": model, "clients": num_clients, "joined (s)": joined_s}
        | row
        | {
            "serving again (s)": serving_s,
            "sent again": asked_again,
        }
    )


def _rounds(
    control: Any, fleet: Sequence[Peer], door: tuple[str, dict[str, str]], pid: int, names: Sequence[str], rounds: int
) -> dict[str, Any]:
    """Rounds of a run, all but the first two: round 0 makes the model, and round 1 brings it to everybody."""
    run_id = create_run(control, rounds + 1, names)
    events = _events(control, run_id)
    _until(events, "round_committed", number=1)
    _ask(fleet)  # what came before is not measured
    with _steering(*door, run_id) as control_s:
        begin, cpu = time.perf_counter(), cpu_seconds([pid])
        _until(events, "run_completed")
        wall, cpu = time.perf_counter() - begin, cpu_seconds([pid]) - cpu
    heartbeat_s = [each for seen in _ask(fleet) for each in seen.heartbeat_s]
    listing = control.ListRounds(run_service_pb2.ListRoundsRequest(run_id=run_id, after_round=1), timeout=ANSWER_S)
    seconds = [json.loads(each.timings_json)["seconds"] for each in listing.rounds]
    return {
        "round (s)": statistics.median(each["total"] for each in seconds),
        "collecting (s)": statistics.median(each["collecting"] for each in seconds),
        "CPU, client and round (ms)": 1000 * cpu / (rounds * len(names)),
        "of a core": cpu / wall,
        "heartbeat p50 (ms)": 1000 * _quantile(heartbeat_s, 0.5),
        "heartbeat p99 (ms)": 1000 * _quantile(heartbeat_s, 0.99),
        "control p50 (ms)": 1000 * _quantile(control_s, 0.5),
        "control p99 (ms)": 1000 * _quantile(control_s, 0.99),
    }


def _half_a_round(control: Any, fleet: Sequence[Peer], names: Sequence[str]) -> str:
    """Have a run's first round collect a share of its updates, and no more; returns the run's id."""
    before = sum(seen.num_committed for seen in _ask(fleet, names[round(COMMITTED * len(names)) :]))
    run_id = create_run(control, 1, names)
    wanted = before + 1 + round(COMMITTED * len(names))  # the first one makes the model, too
    deadline = time.monotonic() + ANSWER_S
    while sum(seen.num_committed for seen in _ask(fleet)) < wanted:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the updates did not come within {ANSWER_S:.0f} s")
        time.sleep(0.1)
    return run_id


@contextmanager
def _fleet(served: Served, names: Sequence[str], num_parameters: int) -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        fleet = [
            stack.enter_context(peer(act, served, names[index::PROCESSES], num_parameters, index))
            for index in range(PROCESSES)
        ]
        for process in fleet:
            process.receive()
        yield fleet


def _ask(fleet: Sequence[Peer], held: Sequence[str] | None = None) -> list[Any]:
    """Return what the processes have seen since the last question; with `held`, which clients to hold in their training."""
    for process in fleet:
        process.control.send(held)
    return [process.receive() for process in fleet]


@contextmanager
def _steering(url: str, headers: dict[str, str], run_id: str) -> Iterator[list[float]]:
    """Call the control API again and again within the block; yields the seconds of each call."""
    calls = (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", None))
    seconds: list[float] = []
    is_over = threading.Event()

    def steer() -> None:
        with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)) as connection:
            while not is_over.is_set():
                for method, path in calls:
                    begin = time.perf_counter()
                    target = "/v1/runs" if path is None else f"/v1/runs/{run_id}{path}"
                    connection.request(method, target, headers=headers)
                    answer = connection.getresponse()
                    answer.read()
                    seconds.append(time.perf_counter() - begin)
                    if path != "/pause":  # a pause is withdrawn at once, before a round ends
                        is_over.wait(CONTROL_S)

    thread = threading.Thread(target=steer, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        is_over.set()
        thread.join()


def _events(control: Any, run_id: str) -> Iterator[Any]:
    request = run_service_pb2.WatchRunRequest(run_id=run_id, follow=True)
    for answer in control.WatchRun(request, timeout=ANSWER_S):
        yield answer.event


def _until(events: Iterator[Any], event_type: str, number: int | None = None) -> None:
    """Read events up to one of this type.

    Raises:
        RuntimeError: The run failed, or ended without it.
    """
    for event in events:
        if event.type in ("run_failed", "client_problem"):
            raise RuntimeError(f"the run met {event.type}: {event.data_json}")
        if event.type == event_type and number in (None, event.round):
            return
    raise RuntimeError(f"the run ended without {event_type}")


def _follow(control: Any, run_id: str, event_type: str) -> None:
    _until(_events(control, run_id), event_type)


def _num_lost(control: Any) -> int:
    request = run_service_pb2.WatchRunRequest(types=["client_lost"], page_size=1000)
    return sum(1 for _ in control.WatchRun(request, timeout=ANSWER_S))


def _quantile(values: Sequence[float], fraction: float) -> float:
    return sorted(values)[min(len(values) - 1, int(fraction * len(values)))] if values else float("nan")


def _peak_mib(pid: int) -> float:
    """The most resident memory that a process ever had, with the files that the kernel keeps for it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has ended")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
