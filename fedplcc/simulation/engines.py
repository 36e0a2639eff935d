"""The engines by name. Each loads its own libraries: a crew's own process needs no torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from fedplcc.parallelism import EngineName, num_workers, parse_engine
from fedplcc.simulation.engine import Engine, Observers, Site


def make_engine(
    sites: Sequence[Site],
    observers: Observers,
    *,
    threads: int,
    jobs: int | None = 1,
    engine: EngineName = "local",
    ray_address: str | None = None,
) -> Engine:
    """Return the engine that does the clients' work.

    Args:
        sites: The clients.
        observers: Who is told what happens.
        threads: Processor threads of one client's training.
        jobs: How many clients work at a time, at most; None for as many as there are processor cores for.
        engine: "local" for this machine: one after another in this process, or several in processes of their own. "ray"
            for a Ray cluster.
        ray_address: Which Ray cluster; one is started on this machine if None.

    Raises:
        InvalidConfig: There is no such engine, nobody would work, or the cluster cannot be used.
        ModuleNotFoundError: The engine's package is not installed.
    """
    parse_engine(engine)
    count = num_workers(jobs, num_clients=len(sites), threads=threads, num_cores=num_cores())
    if count == 1:
        from fedplcc.simulation.in_process import InProcess

        return InProcess(sites, observers)
    from fedplcc.simulation.crew import Crew
    from fedplcc.simulation.processes import WorkerProcess

    return Crew(sites, observers, count, partial(WorkerProcess, threads))


def num_cores() -> int:
    """Processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells
        return os.cpu_count() or 1
