"""Many open runs: seconds of a restart, and milliseconds of a join and of a tick, beside runs that wait for their clients.

    python -m benchmarks.by_hand.open_runs [--runs 1000]

Runs on the machine's disk in one process, without sockets: what is measured is the aggregator's own work and its database.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fedplcc.aggregator.ledger.limits import Limits
from tests.support.federation.in_process import LocalFederation, PassingClock
from tests.support.federation.numpy_client import NumpyClient, a_document

REPETITIONS = 5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="open runs (default 1000)")
    number = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        clients = [NumpyClient(name) for name in ("ann", "bob")]
        federation = LocalFederation(Path(folder), clients, Limits(max_open_runs=number), PassingClock())
        for index in range(number):
            document = a_document(clients=("ann", f"absent{index}"), run={"name": f"run{index}"})
            federation.coordinator.create_run(f"request {index}", document)
        print(f"{number} open runs that wait, median of {REPETITIONS}")
        print(f"restart  {median_s(federation.start_again):8.3f} s")
        print(f"join     {1000 * median_s(federation.join) / len(clients):8.3f} ms")
        print(f"tick     {1000 * median_s(federation.coordinator.tick):8.3f} ms")
        federation.close()


def median_s(work: Callable[[], object]) -> float:
    """Return the median duration of some repetitions, in seconds."""
    durations = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        work()
        durations.append(time.perf_counter() - began)
    return statistics.median(durations)


if __name__ == "__main__":
    main()
