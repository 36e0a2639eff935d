"""The fold of stored models beside a bare float32 block-wise mean of the same files, and the memory that it needs.

One process does all of it; one thread more reads the fold's blocks ahead and checks them by their files' seals. The
fold sums in float64 and rounds once; the bare mean stays in float32. `stored` is what the aggregator does: the fold, hashed,
written and fsynced as it goes. `two slots` is FedOpt's fold with its m and v.
The last row is a server's step of CReFF with 10 classes and 512 features, in processor time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.support.bare import mean_blocks
from benchmarks.support.models import Updates
from benchmarks.support.peak import PeakMemory
from benchmarks.support.processes import Peer, peer
from benchmarks.support.report import Row, Sample, alternate, finish, median, options, ratio, timed
from fedplcc.aggregator.store.blobs.files import sha256_of
from fedplcc.shared.tensors import TensorTable, laid_out, sha256_hex

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
            paths = model_files(Path(folder), num_clients, num_parameters)
            repeats = 1 if arguments.quick else 9 if num_clients * num_parameters < 2e8 else 3
            with peer(work, Path(folder), paths, num_parameters) as worker:
                worker.receive()
                rows.append(_measured(worker, num_clients, num_parameters, repeats))
    rows.append(_creff_step(num_clients=5, quick=arguments.quick))
    finish("fold", rows, arguments)


def work(control: Connection, folder: Path, paths: list[Path], num_parameters: int) -> None:
    """The process that folds: does what it is told to, and says how long it took."""
    from fedplcc.aggregator.computation.fold import BLOCK_ELEMENTS, WeightedModel, fold_models
    from fedplcc.aggregator.computation.slot_fold import SlotInputs, fold_with_slots
    from fedplcc.aggregator.store.blobs.blob_store import BlobStore
    from fedplcc.shared.methods import METHODS
    from fedplcc.shared.methods.parts.slots import ServerView
    from fedplcc.shared.process.allocator import keep_freed_memory
    from fedplcc.shared.tensors import read_header
    from fedplcc.shared.types import MODEL

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

    adaptive = METHODS["fedopt"]
    inputs = SlotInputs(
        table=table,
        parameters=range(len(table.entries)),
        start=paths[0],
        slots=dict.fromkeys(adaptive.server_slots(adaptive.config()), _zeros(folder, table)),
        view=ServerView(round=1, num_eligible=len(paths)),
    )

    def slots() -> None:
        for _ in fold_with_slots(inputs, updates, adaptive, adaptive.config(), BLOCK_ELEMENTS):
            pass

    cases: dict[str, Callable[[], None]] = {"bare": bare, "fold": fold, "stored": stored, "slots": slots}
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
        once("slots")
    once("bare")
    samples = alternate({case: partial(once, case) for case in ("bare", "fold", "stored", "slots")}, repeats)
    return {
        "clients": num_clients,
        "parameters": num_parameters,
        "bare mean (s)": median(samples["bare"]),
        "fold (s)": median(samples["fold"]),
        "ratio": ratio(samples["fold"], samples["bare"]),
        "CPU ratio": ratio(samples["fold"], samples["bare"], "cpu_s"),
        "stored (s)": median(samples["stored"]),
        "two slots (s)": median(samples["slots"]),
        "two slots to fold": ratio(samples["slots"], samples["fold"]),
        "memory (MiB)": memory.extra_mib,
    }


def _creff_step(num_clients: int, *, quick: bool) -> Row:
    """Return the processor time of CReFF's step after the fold, with its defaults."""
    import numpy as np

    from fedplcc.shared.methods.heads.creff import HEAD, METHOD, Config, before_training
    from fedplcc.shared.methods.parts.part import BeforeTraining, ServerRound

    num_classes, dim, rng = 10, 512, np.random.default_rng(0)
    config = Config(retrain_epochs=2, match_steps=2) if quick else Config()
    head = {
        "weight": rng.normal(size=(num_classes, dim)).astype(np.float32) / np.float32(dim**0.5),
        "bias": np.zeros(num_classes, np.float32),
    }

    def upload() -> BeforeTraining:
        features_ND = np.abs(rng.normal(size=(20 * num_classes, dim))).astype(np.float32)
        labels_N = np.arange(len(features_ND)) % num_classes
        return BeforeTraining(
            features_ND=features_ND, labels_N=labels_N, num_classes=num_classes, head=head, received={HEAD: head}
        )

    uploads = [before_training(upload(), config) for _ in range(num_clients)]
    step = ServerRound(
        round=1,
        seed=0,
        num_classes=num_classes,
        feature_dim=dim,
        uploads=uploads,
        arrays={},
        start_head=head,
        head=head,
    )
    sample = timed(partial(METHOD.server_step, step, config))
    return {"clients": num_clients, "parameters": num_classes * (dim + 1), "CReFF step (CPU s)": round(sample.cpu_s, 2)}


def _zeros(folder: Path, table: TensorTable) -> Path:
    """Return a slot's file for models of this layout, all of whose tensors are trained."""
    path = folder / f"{table.size_bytes}-slot"
    path.write_bytes(laid_out(table.schema).header)
    os.truncate(path, laid_out(table.schema).size_bytes)
    return path.rename(folder / sha256_of(path))


def model_files(folder: Path, num_clients: int, num_parameters: int) -> list[Path]:
    """Files of models that all differ, named by their SHA-256 as stored blobs are; made where they are not there yet."""
    paths = []
    for index in range(min(num_clients, MOST_FILES)):
        known = folder / f"{num_parameters}-{index}"
        if not known.is_symlink():
            data = Updates(num_parameters, index).another()
            path = folder / sha256_hex(data)
            path.write_bytes(data)
            known.symlink_to(path)
        paths.append(known.resolve())
    return [paths[index % len(paths)] for index in range(num_clients)]


if __name__ == "__main__":
    main()
