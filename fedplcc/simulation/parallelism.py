"""How many clients work at a time, and in what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedplcc.simulation.engine import Engine, Observers, Site
from fedplcc.simulation.in_process import InProcess

EngineName = Literal["local", "ray"]
"""Where clients work: on this machine, or on a Ray cluster."""


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
        engine: Where they work.
        ray_address: Which Ray cluster; one is started on this machine if None.
    """
    return InProcess(sites, observers)
