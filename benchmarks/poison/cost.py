"""Time of each rule of the fold beside the mean's, in pairs in one process, and the memory that it needs.

`python -m benchmarks.poison.cost`; `--quick` for tiny sizes. Times are medians, ratios medians of the ratios of neighbours
in time; memory is the most anonymous memory above that of the idle process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.fold import model_files
from benchmarks.support.peak import PeakMemory
from benchmarks.support.processes import Peer, peer
from benchmarks.support.report import Row, Sample, alternate, finish, median, options, ratio, timed
from fedplcc.shared.methods.folds.rules import RuleName

RULES: tuple[RuleName, ...] = ("clipped_mean", "trimmed_mean", "median")
CASES = ((2, 4_900_000), (5, 4_900_000), (20, 4_900_000))
"""Clients and parameters whose time is measured."""
MANY = ((2, 200_000), (1000, 200_000))
"""Those whose memory is compared."""


def main() -> None:
    """Measure every case."""
    arguments = options(__doc__)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fedplcc-rules-") as name:
        folder = Path(name)
        for num_clients, num_parameters in ((3, 10_000), (5, 10_000)) if arguments.quick else CASES:
            rows.extend(_times(folder, num_clients, num_parameters, 1 if arguments.quick else 5))
        memory = {}
        for num_clients, num_parameters in ((2, 10_000), (30, 10_000)) if arguments.quick else MANY:
            memory[str(num_clients)] = _memory(folder, num_clients, num_parameters)
    finish("fold_rules", rows, arguments, **{"memory above idle (MiB), by clients": memory})
    print(f"memory above idle (MiB), by clients: {memory}")


def work(control: Connection, paths: list[Path]) -> None:
    """The process that folds: does what it is told to, and says how long it took."""
    from fedplcc.aggregator.computation.fold import BLOCK_ELEMENTS, WeightedModel, fold_models
    from fedplcc.shared.methods import METHODS
    from fedplcc.shared.methods.folds.rules import Rule, with_rule
    from fedplcc.shared.process.allocator import keep_freed_memory
    from fedplcc.shared.tensors import read_header

    keep_freed_memory()  # as an aggregator's process does
    with paths[0].open("rb") as file:
        table = read_header(file)
    updates = [WeightedModel(path, 100.0 + index) for index, path in enumerate(paths)]

    def fold(name: str) -> None:
        rule = None if name == "mean" else Rule(name=name, scales=[0.5] * len(paths))  # type: ignore[arg-type]
        method = with_rule(METHODS["fedavg"], rule)
        size = BLOCK_ELEMENTS if rule is None else rule.block_elements(len(paths), BLOCK_ELEMENTS)
        for _ in fold_models(table, paths[0], updates, method, method.config(), size):
            pass

    cases: dict[str, Callable[[], None]] = {name: partial(fold, name) for name in ("mean", *RULES)}
    control.send(None)
    try:
        while True:
            control.send(timed(cases[control.recv()]))
    except EOFError:
        pass


def _once(worker: Peer, case: str) -> Sample:
    worker.control.send(case)
    sample = worker.receive()
    assert isinstance(sample, Sample)
    return sample


def _times(folder: Path, num_clients: int, num_parameters: int, repeats: int) -> list[Row]:
    arithmetic = _arithmetic(num_clients, 3 * repeats)
    with peer(work, model_files(folder, num_clients, num_parameters)) as worker:
        worker.receive()
        for rule in ("mean", *RULES):
            _once(worker, rule)
        samples = alternate({case: partial(_once, worker, case) for case in ("mean", *RULES)}, repeats)
    return [
        {
            "clients": num_clients,
            "parameters": num_parameters,
            "rule": rule,
            "mean (s)": median(samples["mean"]),
            "rule (s)": median(samples[rule]),
            "ratio": ratio(samples[rule], samples["mean"]),
            "CPU ratio": ratio(samples[rule], samples["mean"], "cpu_s"),
            "CPU ratio, arithmetic alone": arithmetic[rule],
        }
        for rule in RULES
    ]


def _arithmetic(num_clients: int, repeats: int) -> dict[str, float]:
    """Return the processor time of each rule in that of the weighted mean, for one block of each client in memory."""
    import numpy as np

    from fedplcc.shared.methods.folds.rules import Rule
    from fedplcc.shared.methods.maths import weighted_mean

    rules = {name: Rule(name=name, scales=[0.5] * num_clients) for name in RULES}
    size = rules["median"].block_elements(num_clients, 1 << 18)
    blocks = np.random.default_rng(0).normal(size=(num_clients, size)).astype(np.float32)
    weights = [100.0 + client for client in range(num_clients)]
    cases: dict[str, Callable[[], Sample]] = {"mean": lambda: timed(lambda: weighted_mean(iter(blocks), weights))}
    for name, rule in rules.items():
        cases[name] = partial(timed, partial(_fold_blocks, rule.fold, blocks, weights))
    samples = alternate(cases, repeats)
    return {name: ratio(samples[name], samples["mean"], "cpu_s") for name in RULES}


def _fold_blocks(fold: Callable[..., object], blocks: Any, weights: list[float]) -> object:
    return fold(blocks[0].copy, iter(blocks), weights)


def _memory(folder: Path, num_clients: int, num_parameters: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for rule in ("mean", *RULES):
        with peer(work, model_files(folder, num_clients, num_parameters)) as worker:
            worker.receive()
            with PeakMemory(worker.pid) as memory:
                _once(worker, rule)
            found[rule] = memory.extra_mib
    return found


if __name__ == "__main__":
    main()
