"""The engines by name. Each loads its own libraries: a crew's own process needs no torch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

from fedplcc.interruption import SIGNALS
from fedplcc.simulation.engine import Engine, Observers, Site
from fedplcc.simulation.parallelism import EngineName, num_workers, parse_engine
from shared.config.settings import confine_ray_to_loopback, disable_ray_usage_reports

ON_ACCELERATOR = 4
"""Clients that share an accelerator where nobody says how many: each has its own copy of the libraries' code there, hundreds
of megabytes, and what is gained is that one computes while another reads and writes.
"""


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
    if parse_engine(engine) == "ray":
        return _crew_on_ray(sites, observers, threads, jobs, ray_address)
    count = num_workers(jobs, num_clients=len(sites), threads=threads, num_cores=num_cores())
    if jobs is None and count > ON_ACCELERATOR and _is_accelerator(sites[0].device):
        count = ON_ACCELERATOR
    if count == 1:
        from fedplcc.simulation.in_process import InProcess

        return InProcess(sites, observers)
    if find_spec("torch") is None:  # which only the workers would say otherwise
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    from fedplcc.simulation.processes import WorkerProcess
    from fedplcc.simulation.worker_pool import Crew

    return Crew(sites, observers, count, partial(WorkerProcess, threads))


def _crew_on_ray(
    sites: Sequence[Site], observers: Observers, threads: int, jobs: int | None, address: str | None
) -> Engine:
    disable_ray_usage_reports()
    if address is None:
        confine_ray_to_loopback()
    with _own_signals():
        from fedplcc.simulation.on_ray import RayCluster
        from fedplcc.simulation.worker_pool import Crew

        observers.on_begin("starting Ray" if address is None else f"joining the Ray cluster at {address}")
        cluster = RayCluster(address, threads=threads, cores=num_cores(), device=sites[0].device)
    # More workers than there are cores, or parts of accelerators, for would wait for ever.
    most = num_workers(None, num_clients=len(sites), threads=threads, num_cores=cluster.num_cores)
    if cluster.num_gpus:
        most = min(most, ON_ACCELERATOR * cluster.num_gpus)
    count = min(most, num_workers(jobs, num_clients=len(sites), threads=threads, num_cores=cluster.num_cores))
    return Crew(sites, observers, count, cluster.hirer(count), on_close=cluster.close)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what loading and starting Ray would put in place of whoever handles signals here."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_accelerator(device: str) -> bool:
    if device != "auto":
        return device != "cpu"
    from trainer.reproducibility.environment import resolve_device  # loads torch, which many workers are worth

    return resolve_device(device).type != "cpu"


def num_cores() -> int:
    """Processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells
        return os.cpu_count() or 1
