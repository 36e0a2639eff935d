"""An aggregator through very many tiny rounds: what grows with their number, and how much garbage waits.

A real aggregator and two clients of it in a process of their own, over gRPC. They train nothing, so a round is as short as
its calls. Every thousand rounds a line says what the aggregator holds (memory, descriptors, threads), what lies on its disk
(blobs, database, log), and the most blobs that waited for their removal since the line before.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.members import Served
from benchmarks.support.models import Updates
from benchmarks.support.processes import aggregator, peer
from benchmarks.support.report import Row, cpu_seconds, finish, options, table
from benchmarks.support.trainers import CLIENTS, Trainer, create_run, following
from fedplcc.aggregator.app import ENDPOINT_FILE
from fedplcc.aggregator.garbage.collection import MOST_WAITING
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc

ROUNDS, QUICK_ROUNDS = 20_000, 40
LINES = 20
"""Lines of the table."""
NUM_PARAMETERS = 1000
NAMES = CLIENTS[:2]
LOOK_S = 0.5
"""Time between two looks at the garbage that waits."""
ANSWER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Look:
    """State of an aggregator after some rounds."""

    rounds: int
    seconds: float
    cpu_s: float
    memory_mib: float
    descriptors: int
    threads: int
    blobs: int
    waiting: int
    database_bytes: int
    log_bytes: int


def main() -> None:
    """Run the rounds, and print the table."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"number of rounds, {ROUNDS} if not given")

    arguments = options(__doc__, more)
    num_rounds = QUICK_ROUNDS if arguments.quick else arguments.rounds
    looks = measure(num_rounds, max(1, num_rounds // LINES), plain=arguments.plain)
    rows = [_row(before, after) for before, after in itertools.pairwise(looks)]
    most = max(look.waiting for look in looks)
    finish("endurance", rows, arguments, most_waiting=most, goal=f"<= {MOST_WAITING} blobs wait", rounds=num_rounds)
    print(f"at most {most} blobs waited for their removal; the goal is {MOST_WAITING}")


def measure(num_rounds: int, every: int, *, plain: bool = False) -> list[Look]:
    """Run so many rounds; returns a look at the aggregator before the first one and after every few."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedplcc-endurance-")))
        served, pid = stack.enter_context(aggregator(folder, plain=plain))
        gauge = stack.enter_context(_Waiting(folder / "state"))
        stack.enter_context(peer(train, served)).receive()
        control = run_service_pb2_grpc.RunServiceStub(stack.enter_context(served.open_channel()))
        run_id, begin = create_run(control, num_rounds, NAMES), time.perf_counter()
        looks = []
        watch = control.WatchRun(run_service_pb2.WatchRunRequest(run_id=run_id, follow=True), timeout=ANSWER_S)
        for answer in watch:
            if answer.event.type in ("run_failed", "client_problem"):
                raise RuntimeError(f"the run met {answer.event.type}: {answer.event.data_json}")
            if answer.event.type == "round_committed" and answer.event.round % every == 0:
                looks.append(_look(folder, pid, answer.event.round, time.perf_counter() - begin, gauge.most()))
                if len(looks) > 1:
                    print(table([_row(*looks[-2:])]).rpartition("\n")[2], flush=True)
        return looks


class _Waiting:
    """The most blobs that waited for their removal, by the aggregator's metrics, since it was last asked."""

    def __init__(self, state: Path) -> None:
        text = (state / ENDPOINT_FILE).read_text()
        found = re.search(r'"metrics_port": (\d+)', text)
        assert found is not None
        self._url = f"http://127.0.0.1:{found[1]}/metrics"
        self._most, self._lock, self._is_over = 0, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Waiting:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def most(self) -> int:
        """Return the most so far, and begin anew."""
        with self._lock:
            most, self._most = self._most, 0
        return most

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_S):
            with urllib.request.urlopen(self._url, timeout=60) as answer:
                found = re.search(rb"^fedplcc_garbage_blobs (\S+)$", answer.read(), re.MULTILINE)
            assert found is not None
            with self._lock:
                self._most = max(self._most, int(float(found[1])))


def _look(folder: Path, pid: int, rounds: int, seconds: float, waiting: int) -> Look:
    status = Path(f"/proc/{pid}/status").read_text()
    memory, threads = (int(re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)[1]) for key in ("RssAnon", "Threads"))  # type: ignore[index]
    state = folder / "state"
    return Look(
        rounds,
        seconds,
        cpu_seconds([pid]),
        memory / 1024,
        len(os.listdir(f"/proc/{pid}/fd")),
        threads,
        sum(len(os.listdir(each)) for each in (state / "blobs").iterdir()),
        waiting,
        sum(path.stat().st_size for path in state.glob("aggregator.sqlite*")),
        (folder / "aggregator.log").stat().st_size,
    )


def _row(before: Look, after: Look) -> Row:
    rounds = after.rounds - before.rounds
    return {
        "rounds": after.rounds,
        "round (s)": (after.seconds - before.seconds) / rounds,
        "CPU of a round (s)": (after.cpu_s - before.cpu_s) / rounds,
        "memory (MiB)": after.memory_mib,
        "descriptors": after.descriptors,
        "threads": after.threads,
        "blobs": after.blobs,
        "most waiting": after.waiting,
        "database a round (B)": (after.database_bytes - before.database_bytes) / rounds,
        "log a round (B)": (after.log_bytes - before.log_bytes) / rounds,
    }


def train(control: Connection, served: Served) -> None:
    """The process of the clients: each does its tasks as they come."""

    def make(index: int) -> Any:
        updates = Updates(NUM_PARAMETERS, index)
        return lambda client: Trainer(client, updates).perform

    with ExitStack() as stack:
        for index, name in enumerate(NAMES):
            stack.enter_context(following(served, name, make(index)))
        control.send(None)
        control.poll(None)  # until the benchmark lets go


if __name__ == "__main__":
    main()
