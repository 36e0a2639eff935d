"""FINCH beside the published implementation and beside the bare matrix product that any exact one needs.

Each contestant has a process of its own, so that its memory is its own. Rows are features as a ReLU gives them: none is
negative, and clusters overlap. Memory counts from after the imports and holds the rows themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.support.peak import PeakMemory
from benchmarks.support.processes import Peer, peer
from benchmarks.support.report import Sample, alternate, finish, median, options, ratio, timed
from fedplcc.shared.types import FloatArray

BLOCK_ROWS = 1024
"""Rows of a tile of the bare product; as in shared/methods/arithmetic/finch.py."""
NUM_CENTRES = 400
CONTESTANTS = ("fedplcc", "finch-clust", "bare product")

Partitions = list[list[int]]


def main() -> None:
    """Measure, and compare the partitions."""
    arguments = options(__doc__)
    num_rows, dim, repeats = (400, 32, 1) if arguments.quick else (20_000, 512, 5)
    with ExitStack() as stack:
        peers = {name: stack.enter_context(peer(contest, name, num_rows, dim)) for name in CONTESTANTS}
        first = {name: _first(each) for name, each in peers.items()}
        samples = alternate({name: partial(_again, each) for name, each in peers.items()}, repeats)
    partitions = {name: found for name, (_, found) in first.items()}
    rows = [
        {
            "rows": f"{num_rows} x {dim}",
            "who": name,
            "seconds": median(samples[name]),
            "finch-clust's time / this": ratio(samples["finch-clust"], samples[name]),
            "CPU seconds": median(samples[name], "cpu_s"),
            "memory (MiB)": first[name][0],
            "same partitions": partitions[name] == partitions["finch-clust"] if partitions[name] else None,
        }
        for name in CONTESTANTS
    ]
    finish("finch", rows, arguments, clusters=[max(labels) + 1 for labels in partitions["fedplcc"]])


def contest(control: Connection, name: str, num_rows: int, dim: int) -> None:
    """A contestant's process: makes the rows, then works each time it is told to."""
    work = _contestant(name)
    control.send(None)  # the imports are done
    control.recv()
    rows = features(num_rows, dim)
    partitions = work(rows)
    control.send(partitions)
    try:
        while control.recv():
            control.send(timed(lambda: work(rows)))
    except EOFError:
        pass


def features(num_rows: int, dim: int) -> FloatArray:
    """Rows in overlapping clusters, none of them negative."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((NUM_CENTRES, dim), np.float32)
    rows = centres[rng.integers(0, NUM_CENTRES, num_rows)] + rng.standard_normal((num_rows, dim), np.float32)
    features_ND: FloatArray = np.maximum(rows, 0)
    return features_ND


def _contestant(name: str) -> Callable[[FloatArray], Partitions]:
    match name:
        case "fedplcc":
            return _this_project()
        case "finch-clust":
            return _published()
        case _:
            return _bare_product


def _this_project() -> Callable[[FloatArray], Partitions]:
    from fedplcc.shared.methods.arithmetic.finch import finch

    return lambda rows_ND: [labels.tolist() for labels in finch(rows_ND)]


def _published() -> Callable[[FloatArray], Partitions]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses a library for approximate neighbours, which are not wanted here
        from finch import FINCH

    finch: Callable[..., Any] = FINCH

    def cluster(rows_ND: FloatArray) -> Partitions:
        labels_NL, _, _ = finch(rows_ND, ensure_early_exit=False, ann_threshold=len(rows_ND) + 1, verbose=False)
        return [_renumbered(labels_NL[:, level]) for level in range(labels_NL.shape[1])]

    return cluster


def _bare_product(rows_ND: FloatArray) -> Partitions:
    scratch = np.empty((BLOCK_ROWS, len(rows_ND)), np.float32)
    for first in range(0, len(rows_ND), BLOCK_ROWS):
        left_RD = rows_ND[first : first + BLOCK_ROWS]
        np.matmul(left_RD, rows_ND.T, out=scratch[: len(left_RD)])
    return []


def _renumbered(labels: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> list[int]:
    """The same partition, clusters numbered by their first rows."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels.tolist()]


def _first(each: Peer) -> tuple[float, Partitions]:
    """Make the rows and work once, which is slower than later; returns the memory that it took, and the result."""
    each.receive()
    with PeakMemory(each.pid) as memory:
        each.control.send(True)
        partitions = each.receive()
    return memory.extra_mib, partitions


def _again(each: Peer) -> Sample:
    each.control.send(True)
    sample = each.receive()
    assert isinstance(sample, Sample)
    return sample


if __name__ == "__main__":
    main()
