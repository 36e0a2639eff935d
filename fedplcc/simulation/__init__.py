"""A whole federation without sockets, as far as one machine or a Ray cluster takes it.

    federation.py     the aggregator's service and store, driven until the run has ended
    engine.py         what does the clients' work; engines.py chooses among three:
      in_process.py     here, one client after another
      crew.py           beside each other: in processes of this machine (processes.py) or of a Ray cluster (on_ray.py)

Which engine works, and how many clients at a time, changes no byte of what the run leaves.
"""

from fedplcc.parallelism import EngineName
from fedplcc.simulation.engine import Observers
from fedplcc.simulation.federation import Simulation, simulate_in_folder

__all__ = ["EngineName", "Observers", "Simulation", "simulate_in_folder"]
