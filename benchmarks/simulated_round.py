"""Seconds of one round on Digit-5 in simulation, and where they go: FedPLCC or other methods, with 1 and 2 jobs.

It is `fedplcc simulate` on experiments/digit5.toml: five clients, ten steps of batch 32 each, features and clusters of 300
images and an evaluation on 2,000 each, and an aggregator that checks, folds, clusters and keeps everything on the disk.
A round reaches from one commit to the next. Where the data set's files are missing, noise of the same sizes takes their
place, which costs the same but for the number of prototypes; the table says so. Several methods are measured in turn, and
each stands beside the first of them: `--methods fedavg fedntd --jobs 1` says what FedNTD's round adds to FedAvg's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support.report import ROOT, Row, Sample, cpu_seconds, finish, options, with_children
from fedplcc.runs.configuration import Overrides, read_federation
from fedplcc.shared.config.run import FederationFile, parse_federation, read_document
from fedplcc.shared.documents import Event
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.parts.public import PublicLearning
from fedplcc.simulation import Observers, Simulation
from fedplcc.trainer.reproducibility.environment import environment, resolve_device

CONFIG = ROOT / "experiments" / "digit5.toml"
NUM_IMAGES = 2000
"""Training and test images of a domain."""
WARM_UP, ROUNDS, REPEATS = 2, 5, 2
"""Rounds that are not measured, as the first has no prototypes and starts everything up; rounds that are; how often."""
MEASURED = [name for name, method in METHODS.items() if method.part(PublicLearning) is None]
"""Methods that need no public images."""
GOAL_S = 0.5
"""On a GPU."""
PARTS: Mapping[str, Sequence[str]] = {
    "train (s)": ("train_seconds",),
    "summarise (s)": ("summarise_seconds",),
    "evaluate (s)": ("evaluation_evaluate_seconds",),
    "build (s)": ("build_seconds", "evaluation_build_seconds"),
    "keep and hand over (s)": (
        "stage_seconds",
        "upload_seconds",
        "download_seconds",
        "evaluation_download_seconds",
    ),
}
"""What clients measure of themselves, by column; summed over the clients."""


def main() -> None:
    """Measure every number of jobs."""
    arguments = options(__doc__, more=_more)
    try:
        device = resolve_device(arguments.device)
        rows, data = _measured(arguments)
    except FedplccError as error:
        raise SystemExit(error.detail) from error
    finish("simulated_round", rows, arguments, device=environment(device).device, data=data)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="where clients train: cpu, cuda or cuda:N")
    parser.add_argument("--jobs", nargs="+", type=int, help="how many clients work at a time; 1 and 2 if not given")
    parser.add_argument(
        "--methods", nargs="+", choices=MEASURED, default=["fedplcc"], help="which; the first is the base"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how many rounds are measured at a time")


def _measured(arguments: argparse.Namespace) -> tuple[list[Row], str]:
    """The rows, and which images they were measured on."""
    repeats, warm_up, rounds = (1, 0, 1) if arguments.quick else (REPEATS, WARM_UP, arguments.rounds)
    all_jobs = arguments.jobs or ([1] if arguments.quick else [1, 2])
    cases = [(method, jobs) for jobs in all_jobs for method in arguments.methods]
    seconds: dict[tuple[str, int], list[dict[str, float]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="fedplcc-simulated-round-") as name, chdir(ROOT):
        folder = Path(name)
        federations = {each: _federation(folder, arguments, each, warm_up + rounds) for each in arguments.methods}
        for number in range(repeats):
            for method, jobs in cases:  # in turn, so that a machine that slows down slows all of them
                state = folder / f"{number}-{method}-{jobs}"
                state.mkdir()
                federation, _ = federations[method]
                seconds[method, jobs] += _simulated(federation, state, arguments.device, jobs)[warm_up:]
    rows = []
    for method, jobs in cases:
        base = seconds[arguments.methods[0], jobs]
        rows.append(_row(arguments.device, method, jobs, seconds[method, jobs], base))
    _, data = federations[arguments.methods[0]]
    return rows, data


def _row(
    device: str,
    method: str,
    jobs: int,
    seconds: Sequence[Mapping[str, float]],
    base: Sequence[Mapping[str, float]],
) -> Row:
    medians = _medians(seconds)
    parts = [medians[part] for part in (*PARTS, "aggregate (s)")]
    is_goal = device.startswith("cuda") and method == "fedplcc"
    return {
        "method": method,
        "device": device,
        "jobs": jobs,
        **medians,
        # Clients that work beside each other take less time than the sum of theirs.
        "other (s)": medians["round (s)"] - sum(parts) if jobs == 1 else None,
        "CPU, of the first method's": None if seconds is base else medians["CPU (s)"] / _medians(base)["CPU (s)"],
        "goal": f"<= {GOAL_S} s" if is_goal else None,
        "reached": medians["round (s)"] <= GOAL_S if is_goal else None,
    }


def _medians(seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {part: statistics.median(each[part] for each in seconds) for part in seconds[0]}


def _simulated(federation: FederationFile, folder: Path, device: str, jobs: int) -> list[dict[str, float]]:
    """Run a simulation; returns the seconds of each round by part."""
    committed: dict[int, Sample] = {}

    def on_event(event: Event) -> None:
        if event.type == "round_committed" and event.round is not None:
            committed[event.round] = Sample(time.perf_counter(), cpu_seconds(with_children(os.getpid())))

    observers = Observers(on_event=on_event)
    with closing(
        Simulation(federation, folder, request_id="bench", device=device, observers=observers, jobs=jobs)
    ) as run:
        run.run_to_end()
        timings = [json.loads(line) for line in run.record().timings_lines]
    rounds = []
    for line in timings:
        begin, end = committed[line["round"] - 1], committed[line["round"]]  # round 0 commits the first model
        rounds.append({"round (s)": end.wall_s - begin.wall_s, "CPU (s)": end.cpu_s - begin.cpu_s, **_parts(line)})
    return rounds


def _parts(line: Mapping[str, Any]) -> dict[str, float]:
    clients = line["clients"].values()
    parts = {part: sum(client.get(name, 0.0) for client in clients for name in names) for part, names in PARTS.items()}
    return {**parts, "aggregate (s)": line["seconds"]["aggregating"]}


def _federation(folder: Path, arguments: argparse.Namespace, method: str, rounds: int) -> tuple[FederationFile, str]:
    """Digit-5's federation, and what its images are."""
    federation = read_federation(CONFIG, Overrides(method=method, rounds=rounds))
    if not arguments.quick and all(_is_there(client.data) for client in federation.clients.values()):
        return federation, "Digit-5"
    document = read_document(CONFIG)
    document["clients"] = {name: {"data": _noise(folder, name, arguments.quick)} for name in federation.clients}
    document["run"] |= {"rounds": rounds, "method": method}
    if arguments.quick:
        document["model"] = {"name": "cnn4"}
        document["training"] |= {"local_steps": 1, "batch_size": 8}
    else:
        document["clients"] = {name: {**table, "samples_per_class": 30} for name, table in document["clients"].items()}
    return parse_federation(document), "noise"


def _is_there(data: str) -> bool:
    """Whether there is a folder at the end of a specification."""
    return os.path.isdir(data.rpartition(":")[2])


def _noise(folder: Path, name: str, is_quick: bool) -> str:
    """A data set of random images in the sizes of a domain."""
    rng = np.random.default_rng(list(name.encode()))
    arrays: dict[str, Any] = {"classes": np.array([str(number) for number in range(10)])}
    for part in ("train", "test"):
        labels = np.arange(20 if is_quick else NUM_IMAGES) % 10
        images = rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    np.savez(folder / f"{name}.npz", **arrays)
    return f"npz:{folder / name}.npz"


if __name__ == "__main__":
    main()
