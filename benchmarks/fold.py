"""The fold of stored models beside a bare float32 block-wise mean of the same files, and the memory that it needs.

One process does all of it. The fold sums in float64 and rounds once; the bare mean stays in float32. `stored` is what the
aggregator does: the fold, hashed, written and fsynced as it goes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.bare import mean_blocks
from benchmarks.models import Updates
from benchmarks.peak import PeakMemory
from benchmarks.processes import Peer, peer
from benchmarks.report import Row, Sample, alternate, finish, median, options, ratio, timed

CASES = ((5, 4_900_000), (20, 4_900_000), (100, 4_900_000), (5, 25_000_000), (20, 25_000_000), (100, 25_000_000))
"""Clients and parameters."""
MOST_FILES = 20
"""Different models of a size, for the disk's sake: the hundred clients are these, five times."""


def main() -> None:
    """Measure every case."""
    arguments = options(__doc__)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fedplcc-fold-") as folder:
        for num_clients, num_parameters in ((3, 10_000), (30, 10_000)) if arguments.quick else CASES:
            paths = _models(Path(folder), num_clients, num_parameters)
            repeats = 1 if arguments.quick else 9 if num_clients * num_parameters < 2e8 else 3
            with peer(work, Path(folder), paths, num_parameters) as worker:
                worker.receive()
                rows.append(_measured(worker, num_clients, num_parameters, repeats))
    finish("fold", rows, arguments)


def work(control: Connection, folder: Path, paths: list[Path], num_parameters: int) -> None:
    """The process that folds: does what it is told to, and says how long it took."""
    from aggregator.computation.fold import WeightedModel, fold_models
    from aggregator.store.blobs.blob_store import BlobStore
    from shared.methods import METHODS
    from shared.process.allocator import keep_freed_memory
    from shared.tensors import read_header
    from shared.types import MODEL

    keep_freed_memory()  # as an aggregator's process does
    with paths[0].open("rb") as file:
        table = read_header(file)
    method = METHODS["fedavg"]
    updates = [WeightedModel(path, 100.0 + index) for index, path in enumerate(paths)]
    store = folder / "store"
    store.mkdir(exist_ok=True)
    blobs = BlobStore(store)

    def bare() -> None:
        for _ in mean_blocks(paths, len(table.header), num_parameters):
            pass

    def fold() -> None:
        for _ in fold_models(table, paths[0], updates, method, method.config()):
            pass

    def stored() -> None:
        blob = blobs.put(MODEL, fold_models(table, paths[0], updates, method, method.config()))
        blobs.path(blob.sha256).unlink()

    cases: dict[str, Callable[[], None]] = {"bare": bare, "fold": fold, "stored": stored}
    control.send(None)
    try:
        while True:
            control.send(timed(cases[control.recv()]))
    except EOFError:
        pass


def _measured(worker: Peer, num_clients: int, num_parameters: int, repeats: int) -> Row:
    def once(case: str) -> Sample:
        worker.control.send(case)
        sample = worker.receive()
        assert isinstance(sample, Sample)
        return sample

    with PeakMemory(worker.pid) as memory:
        once("stored")
    once("bare")
    samples = alternate({case: partial(once, case) for case in ("bare", "fold", "stored")}, repeats)
    return {
        "clients": num_clients,
        "parameters": num_parameters,
        "bare mean (s)": median(samples["bare"]),
        "fold (s)": median(samples["fold"]),
        "ratio": ratio(samples["fold"], samples["bare"]),
        "CPU ratio": ratio(samples["fold"], samples["bare"], "cpu_s"),
        "stored (s)": median(samples["stored"]),
        "memory (MiB)": memory.extra_mib,
    }


def _models(folder: Path, num_clients: int, num_parameters: int) -> list[Path]:
    """Files of models that all differ, made where they are not there yet."""
    paths = [folder / f"{num_parameters}-{index}" for index in range(min(num_clients, MOST_FILES))]
    for index, path in enumerate(paths):
        if not path.exists():
            path.write_bytes(Updates(num_parameters, index).another())
    return [paths[index % len(paths)] for index in range(num_clients)]


if __name__ == "__main__":
    main()
