"""Simulation of a whole federation without sockets, on one machine or a Ray cluster.

    federation.py         the aggregator's service and store, driven until the run has ended
    engine.py             the interface of engines, which do the clients' work; engines.py chooses one:
      in_process.py         one client after another, in this process
      parallel_clients.py   several at a time, by the workers of worker_pool.py: processes of this machine
                            (worker_process.py) or of a Ray cluster (ray_cluster.py)

The engine and the number of clients at a time change no byte of a run's results.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedplcc.simulation.engine import Observers
    from fedplcc.simulation.federation import Simulation, simulate_in_folder

__all__ = ["Observers", "Simulation", "simulate_in_folder"]


def __getattr__(name: str) -> Any:
    """Load a name on first use: workers import this package too, and need no aggregator and no database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "engine" if name == "Observers" else "federation"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
