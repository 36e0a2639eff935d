"""Shares of the aggregator's processor time in a round of a tiny model, and its calls, statements, fsyncs and hops.

The aggregator runs in a process of its own with a profiler in each thread, five trainers that do no training in theirs.
The profiler counts processor time and makes Python calls dearer than they are: the shares say what to look at;
`benchmarks.rounds` says how long a round takes.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.members import Members, Served
from benchmarks.support.models import Updates
from benchmarks.support.processes import ANSWER_S, STATE, calls_of_trainers, peer
from benchmarks.support.report import Row, finish, options
from benchmarks.support.trainers import CLIENTS, Trainer, create_run, following
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc, types_pb2

NUM_PARAMETERS, ROUNDS, QUICK_ROUNDS = 10_000, 100, 3

PARTS: Mapping[str, Sequence[str]] = {
    "database: statements, transactions, fsync": ("sqlalchemy", "store/database", "sqlite3"),
    "files of blobs: written, fsynced, read": (
        "store/blobs",
        "process/disk.py",
        "tempfile.py",
        "pathlib.py",
        "shutil.py",
    ),
    "checks of updates, fold": ("aggregator/computation", "shared/tensors.py", "numpy", "shared/methods"),
    "log lines": ("structlog", "/logging/", "process/log.py", "call_logs.py", "event_log.py"),
    "metrics": ("aggregator/metrics", "prometheus_client"),
    "hops between the event loop and threads": ("concurrent/futures", "threading.py", "asyncio/threads.py", "queue"),
    "gRPC, event loop, messages": (
        "asyncio",
        "grpc",
        "selectors.py",
        "shared/wire",
        "servicer",
        "shared/convert",
        "protobuf",
    ),
    "rounds: states, locks, tasks": ("aggregator/", "shared/", "dataclasses.py", "json"),
}
"""Parts by words in the file of a function, the first that fits; what is left is "other"."""
COUNTS: Mapping[str, str] = {
    "fsyncs of files and folders": "posix.fsync",
    "SQL statements": "'execute' of 'sqlite3.Cursor'",
    "transactions, each one fsync": "'commit' of 'sqlite3.Connection'",
    "calls handed to a thread": "submit",
    "tasks sent on the streams": "task_to_proto",
}
"""Functions whose calls are counted, by their names in a profile."""


def main() -> None:
    """Profile and print."""
    arguments = options(__doc__)
    rounds = QUICK_ROUNDS if arguments.quick else ROUNDS
    clients = CLIENTS[:2] if arguments.quick else CLIENTS
    with tempfile.TemporaryDirectory(prefix="fedplcc-profile-") as name:
        file = Path(name) / "profile"
        calls = profile(Path(name), file, rounds, clients, plain=arguments.plain)
        stats: Any = pstats.Stats(str(file))
    seconds = parts_of(stats.stats)
    total = sum(seconds.values())
    rows: list[Row] = [
        {"part": part, "share": f"{100 * value / total:.0f} %", "profiled CPU of a round (ms)": 1000 * value / rounds}
        for part, value in seconds.most_common()
    ]
    counts = {what: _num_calls(stats.stats, name) / rounds for what, name in COUNTS.items()}
    for what, number in {
        **{f"calls of {method}": calls[method] / rounds for method in sorted(calls)},
        **counts,
    }.items():
        rows.append({"part": what, "a round": number})
    finish("round_profile", rows, arguments, rounds=rounds, clients=len(clients))


def profile(folder: Path, file: Path, rounds: int, clients: Sequence[str], *, plain: bool = False) -> Counter[str]:
    """Let a profiled aggregator run, and keep its profile; returns the calls to it by method."""
    with ExitStack() as stack:
        members = Members.of(folder / STATE, plain=plain)
        profiled = stack.enter_context(peer(serve, folder / STATE, file, plain))
        endpoint = profiled.receive()
        served = Served(f"127.0.0.1:{endpoint['port']}", members, endpoint["admin_socket"])
        with ExitStack() as trained:
            trainers = [trained.enter_context(peer(train, index, served)) for index in range(len(clients))]
            for trainer in trainers:
                trainer.receive()
            control = run_service_pb2_grpc.RunServiceStub(stack.enter_context(served.open_channel()))
            run_id = create_run(control, rounds, clients)
            status = types_pb2.RUN_STATUS_PENDING
            while status != types_pb2.RUN_STATUS_COMPLETED:
                time.sleep(0.5)
                answer = control.GetRun(run_service_pb2.GetRunRequest(run_id=run_id), timeout=ANSWER_S)
                status = answer.run.status
        calls = calls_of_trainers(endpoint["metrics_port"])
        profiled.control.send("end")
        profiled.receive()
        return calls


def serve(control: Connection, state: Path, file: Path, plain: bool) -> None:
    """The aggregator's process: serves with a profiler in each thread until it is told to end."""
    from fedplcc.aggregator.__main__ import main as aggregator

    profiles: list[cProfile.Profile] = []
    run = threading.Thread.run

    def profiled(thread: threading.Thread) -> None:
        profiler = cProfile.Profile(time.thread_time)
        profiles.append(profiler)
        profiler.runcall(run, thread)

    def follow() -> None:
        endpoint = state / "endpoint.json"
        while not endpoint.exists():
            time.sleep(0.02)
        control.send(json.loads(endpoint.read_text()))
        control.recv()
        os.kill(os.getpid(), signal.SIGTERM)

    log = os.open(state.parent / "aggregator.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, sys.stdout.fileno())
    os.dup2(log, sys.stderr.fileno())
    threading.Thread(target=follow, daemon=True).start()
    threading.Thread.run = profiled  # type: ignore[method-assign, assignment]
    profiles.append(cProfile.Profile(time.thread_time))
    transport = ("--insecure",) if plain else ("--enrol-port", "0")
    profiles[0].runcall(aggregator, [*transport, "--state-dir", str(state), "--port", "0", "--metrics-port", "0"])
    threading.Thread.run = run  # type: ignore[method-assign]
    stats = pstats.Stats(profiles[0])
    for profiler in profiles[1:]:
        if profiler.getstats():
            stats.add(profiler)
    stats.dump_stats(str(file))
    control.send(None)


def train(control: Connection, index: int, served: Served) -> None:
    """A trainer's process: does the aggregator's tasks as they come."""
    updates = Updates(NUM_PARAMETERS, index)
    with following(served, CLIENTS[index], lambda client: Trainer(client, updates).perform):
        control.send(None)
        with suppress(EOFError):
            control.recv()


def parts_of(stats: Mapping[Any, Any]) -> Counter[str]:
    """Seconds by part; what C code took counts for the functions that called it."""
    seconds: Counter[str] = Counter()
    for (file, _line, name), (_primitive, _all, own, _cumulative, callers) in stats.items():
        if "SimpleQueue" in name:
            continue  # a thread that still waits when the profiler ends; its clock is read by another thread then
        if file != "~":
            seconds[_part(file)] += own
            continue
        for (calling_file, *_rest), (_calls, _all_calls, share, _total) in callers.items():
            seconds[_part(calling_file)] += share
    return seconds


def _part(file: str) -> str:
    return next((part for part, words in PARTS.items() if any(word in file for word in words)), "other")


def _num_calls(stats: Mapping[Any, Any], name: str) -> int:
    return sum(entry[0] for (_file, _line, function), entry in stats.items() if name in function)


if __name__ == "__main__":
    main()
