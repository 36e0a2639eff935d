"""A whole federation without sockets, as far as one machine or a Ray cluster takes it.

    federation.py     the aggregator's service and store, driven until the run has ended
    engine.py         what does the clients' work; engines.py chooses among three:
      in_process.py     here, one client after another
      worker_pool.py    beside each other: in processes of this machine (processes.py) or of a Ray cluster (on_ray.py)

Which engine works, and how many clients at a time, changes no byte of what the run leaves.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedplcc.simulation.engine import Observers
    from fedplcc.simulation.federation import Simulation, simulate_in_folder

__all__ = ["Observers", "Simulation", "simulate_in_folder"]


def __getattr__(name: str) -> Any:
    """Load what is asked for: a worker, which is in this package too, has no use for an aggregator and its database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "engine" if name == "Observers" else "federation"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
