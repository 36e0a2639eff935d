"""Choice of a simulation's engine. Each engine loads its own libraries: the process of a worker pool needs no torch."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec

from fedplcc.interruption import SIGNALS
from fedplcc.shared.config.settings import confine_ray_to_loopback, disable_ray_usage_reports
from fedplcc.simulation.engine import Engine, Observers, Site
from fedplcc.simulation.parallelism import EngineName, num_workers, parse_engine

CLIENT_WORKER = "fedplcc.simulation.client_worker"
ON_ACCELERATOR = 4
"""Default number of clients that share an accelerator: one computes while another reads and writes, but each holds hundreds
of megabytes of library code there.
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
        jobs: Most clients that work at a time; None for as many as the processor cores allow.
        engine: "local" for this machine: one after another in this process, or several in processes of their own. "ray"
            for a Ray cluster.
        ray_address: Which Ray cluster; one is started on this machine if None.

    Raises:
        InvalidConfig: There is no such engine, `jobs` is below 1, or the cluster cannot be used.
        ModuleNotFoundError: The engine's package is not installed.
    """
    if parse_engine(engine) == "ray":
        return _ray_engine(sites, observers, threads, jobs, ray_address)
    count = num_workers(jobs, num_clients=len(sites), threads=threads, num_cores=num_cores())
    if jobs is None and count > ON_ACCELERATOR and _is_accelerator(sites[0].device):
        count = ON_ACCELERATOR
    if count == 1:
        from fedplcc.simulation.in_process import InProcess

        return InProcess(sites, observers)
    if find_spec("torch") is None:  # otherwise only the workers would notice
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    from fedplcc.simulation.parallel_clients import ParallelClients
    from fedplcc.simulation.worker_process import WorkerProcess

    return ParallelClients(sites, observers, count, partial(WorkerProcess, CLIENT_WORKER, threads))


def _ray_engine(
    sites: Sequence[Site], observers: Observers, threads: int, jobs: int | None, address: str | None
) -> Engine:
    disable_ray_usage_reports()
    if address is None:
        confine_ray_to_loopback()
    with _own_signals():
        from fedplcc.simulation.parallel_clients import ParallelClients
        from fedplcc.simulation.ray_cluster import RayCluster

        observers.on_begin("starting Ray" if address is None else f"joining the Ray cluster at {address}")
        cluster = RayCluster(address, threads=threads, cores=num_cores(), device=sites[0].device)
    # A worker without a free core, or a share of an accelerator, would wait for ever.
    most = num_workers(None, num_clients=len(sites), threads=threads, num_cores=cluster.num_cores)
    if cluster.num_gpus:
        most = min(most, ON_ACCELERATOR * cluster.num_gpus)
    count = min(most, num_workers(jobs, num_clients=len(sites), threads=threads, num_cores=cluster.num_cores))
    return ParallelClients(sites, observers, count, cluster.starter(count), on_close=cluster.close)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Within the block, keep the signal handlers that Ray would replace."""
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
    from fedplcc.trainer.reproducibility.environment import resolve_device  # loads torch

    return resolve_device(device).type != "cpu"


def num_cores() -> int:
    """Return the number of processor cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        return os.cpu_count() or 1
