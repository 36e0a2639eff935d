"""Workers of simulations and comparisons that begin as forks: a start loads torch, seconds of a processor for each.

Starts of their own have those whose start, end or messages a test is about (test_parallel_clients.py, test_worker_pool.py).
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from fedplcc.simulation import worker_process
from tests.support.federation import forks

STARTED = worker_process._started
"""How workers start of themselves."""


def use_forked_workers(patch: pytest.MonkeyPatch) -> None:
    """Have every worker that this process starts be a fork of the parent that has loaded torch."""
    patch.setattr(worker_process, "_started", _forked)


def _forked(module: str, threads: int) -> tuple[worker_process.PipeLink, forks.Forked]:
    ours, theirs = multiprocessing.Pipe()
    with theirs, Path(os.devnull).open("rb") as nothing:
        process = forks.parent_of(forks.TRAINERS[0]).fork(
            module,
            ["3", str(threads), "error"],
            Path.cwd(),
            worker_process._environment(threads),
            [nothing.fileno(), worker_process.STDERR, worker_process.STDERR, theirs.fileno()],
        )
    return worker_process.PipeLink(ours), process
