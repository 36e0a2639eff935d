"""A hundred clients of a real aggregator, each with a connection of its own, and a kill in the middle of a round.

    python -m tests.chaos.fleet --clients 100

The measuring is that of `benchmarks/fleet.py`; here only what must hold on any machine is judged: nobody loses a lease, and
after the kill nothing that was committed is sent again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.fleet import measured

MUST_BE_ZERO = ("lost leases", "sent again")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fleet; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    found = measured("tiny", options.clients, options.rounds)
    for name, value in found.items():
        print(f"{name:>28}  {value}")
    violated = [name for name in MUST_BE_ZERO if found[name]]
    for name in violated:
        print(f"VIOLATED: {name}: {found[name]}")
    return int(bool(violated))


if __name__ == "__main__":
    sys.exit(main())
