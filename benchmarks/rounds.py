"""Rounds of a real aggregator with five trainers that do no training, beside a bare gRPC loop that moves the same bytes.

A round moves a float32 model to every trainer and another one back, and is durable. The trainers are processes of their own,
with the trainer's own client; the bare loop (bare.py) hashes and fsyncs too. One more yardstick also takes the mean of what
came and makes it the model of its next round: the least that a round of federated averaging is.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.support.bare import BareClient, serve
from benchmarks.support.members import Members, Served
from benchmarks.support.models import Updates, model_bytes
from benchmarks.support.processes import ANSWER_S, STATE, Peer, aggregator, calls_of_trainers, peer
from benchmarks.support.report import Sample, alternate, cpu_seconds, finish, median, options, ratio
from benchmarks.support.trainers import CLIENTS, Trainer, create_run, following
from fedplcc.aggregator.app import ENDPOINT_FILE
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, run_service_pb2_grpc

SIZES = {"0.01 M": 10_000, "4.9 M": 4_900_000, "25 M": 25_000_000}
ROUNDS = {"0.01 M": (20, 7), "4.9 M": (4, 5), "25 M": (3, 4)}
"""Rounds at a time, and how often; an aggregator keeps every update, half a gigabyte a round of the largest model."""
GOALS = {"0.01 M": "<= 0.03 s", "4.9 M": "<= 1.5 x", "25 M": "<= 1.35 x"}


def main() -> None:
    """Measure every size."""
    arguments = options(__doc__)
    sizes = {"0.01 M": 10_000} if arguments.quick else SIZES
    rows, phases = [], []
    for name, num_parameters in sizes.items():
        rounds, repeats = (2, 1) if arguments.quick else ROUNDS[name]
        clients = CLIENTS[:2] if arguments.quick else CLIENTS
        row, phase = measure(name, num_parameters, rounds, repeats, clients, plain=arguments.plain)
        rows.append(row)
        phases.append(phase)
    finish("rounds", rows, arguments, phases=phases)


def measure(
    name: str,
    num_parameters: int,
    rounds: int,
    repeats: int,
    clients: Sequence[str] = CLIENTS,
    *,
    plain: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One size: seconds a round of this project and of both yardsticks, and where this project's round goes."""
    model = model_bytes(num_parameters)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedplcc-rounds-")))
        (folder / "bare").mkdir()
        members = Members.of(folder / STATE, plain=plain)
        bare = stack.enter_context(peer(serve, folder / "bare", model, members))
        port = bare.receive()
        served, pid = stack.enter_context(aggregator(folder, plain=plain))
        trainers = [
            stack.enter_context(peer(train, index, num_parameters, served, port)) for index in range(len(clients))
        ]
        for trainer in trainers:
            trainer.receive()
        control = run_service_pb2_grpc.RunServiceStub(stack.enter_context(served.open_channel()))
        seconds: list[dict[str, float]] = []
        trainer_pids = [trainer.pid for trainer in trainers]
        metrics_port = json.loads((folder / STATE / ENDPOINT_FILE).read_text())["metrics_port"]
        spent: list[dict[str, float]] = []

        def bare_rounds(with_mean: bool) -> Sample:
            sample = _timed_rounds([bare.pid, *trainer_pids], rounds, lambda: bare_round(trainers, bare, with_mean))
            for path in (folder / "bare").glob("*-*"):
                path.unlink()
            return sample

        def project_rounds() -> Sample:
            calls, cpu = calls_of_trainers(metrics_port).total(), cpu_seconds([pid])
            sample = timed_run(control, rounds, clients, [pid, *trainer_pids], seconds)
            calls, cpu = calls_of_trainers(metrics_port).total() - calls, cpu_seconds([pid]) - cpu
            # Of the whole run, its round 0 with one update and its round 1 with them.
            spent.append({"calls": calls / (rounds + 1), "cpu_s": cpu / (rounds + 1)})
            return sample

        cases = {
            "bare": lambda: bare_rounds(False),
            "bare with mean": lambda: bare_rounds(True),
            "fedplcc": project_rounds,
        }
        for case in cases.values():  # the first time of anything is slower
            case()
        seconds.clear()
        spent.clear()
        samples = alternate(cases, repeats)
    mine, base, with_mean = (samples[case] for case in ("fedplcc", "bare", "bare with mean"))
    row = {
        "model": name,
        "round (s)": median(mine),
        "bare loop (s)": median(base),
        "bare loop with mean (s)": median(with_mean),
        "CPU of a round (s)": median(mine, "cpu_s"),
        "CPU of the aggregator (s)": statistics.median(each["cpu_s"] for each in spent),
        "calls of a round": statistics.median(each["calls"] for each in spent),
        "ratio": ratio(mine, base),
        "ratio, with mean": ratio(mine, with_mean),
        "CPU ratio": ratio(mine, base, "cpu_s"),
        "CPU ratio, with mean": ratio(mine, with_mean, "cpu_s"),
        "goal": GOALS[name],
    }
    names = seconds[0].keys()
    return row, {"model": name, **{phase: sum(each[phase] for each in seconds) / len(seconds) for phase in names}}


def bare_round(trainers: list[Peer], bare: Peer, with_mean: bool) -> None:
    """One round of the bare loop."""
    for trainer in trainers:
        trainer.control.send("round")
    names = [trainer.receive() for trainer in trainers]
    if with_mean:
        bare.control.send(names)
        bare.receive()


def _timed_rounds(pids: list[int], rounds: int, once: Callable[[], None]) -> Sample:
    wall, cpu = time.perf_counter(), cpu_seconds(pids)
    for _ in range(rounds):
        once()
    return Sample((time.perf_counter() - wall) / rounds, (cpu_seconds(pids) - cpu) / rounds)


def timed_run(
    control: Any, rounds: int, clients: Sequence[str], pids: list[int], seconds: list[dict[str, float]]
) -> Sample:
    """Let the aggregator run; round 0 makes the model and round 1 brings it to everybody, the others are measured."""
    run_id = create_run(control, rounds + 1, clients)
    watch = control.WatchRun(run_service_pb2.WatchRunRequest(run_id=run_id, follow=True), timeout=ANSWER_S)
    begin = cpu = 0.0
    for answer in watch:
        if answer.event.type in ("run_failed", "client_problem"):
            raise RuntimeError(f"the run met {answer.event.type}: {answer.event.data_json}")
        if answer.event.type == "round_committed" and answer.event.round == 1:
            begin, cpu = time.perf_counter(), cpu_seconds(pids)
    wall, cpu = time.perf_counter() - begin, cpu_seconds(pids) - cpu
    listing = control.ListRounds(run_service_pb2.ListRoundsRequest(run_id=run_id, after_round=1), timeout=ANSWER_S)
    seconds += [json.loads(each.timings_json)["seconds"] for each in listing.rounds]
    return Sample(wall / rounds, cpu / rounds)


def train(control: Connection, index: int, num_parameters: int, served: Served, port: int) -> None:
    """A trainer's process: does the aggregator's tasks as they come, and a round of the bare loop when asked."""
    updates = Updates(num_parameters, index)
    bare = BareClient(port, served.members)
    with following(served, CLIENTS[index], lambda client: Trainer(client, updates).perform):
        control.send(None)
        try:
            while control.recv():
                bare.download()
                control.send(bare.upload(CLIENTS[index], updates.another()))
        except EOFError:
            pass
    bare.close()


if __name__ == "__main__":
    main()
