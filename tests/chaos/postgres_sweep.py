"""The crash sweep with the aggregator's store on PostgreSQL: `python -m tests.chaos.postgres_sweep`.

A sample of sweep.py: what differs is how the store begins, commits and comes back, so the turns are those around commits,
transitions of runs, and what binds the state directory to its database. The server is the tests' own
(tests/support/hosts/postgres.py); where PostgreSQL is not installed, this says so and sweeps nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.chaos import sweep
from tests.support.hosts.postgres import HOW_TO_INSTALL, a_server, binaries

RUNNING = ("--quick", "--points", "store.*", "transition.*")
FOUNDING = ("--quick", "--scenario", "members and keys", "--points", "belonging.*")
"""Only an aggregator that knows no member yet binds a new database to its state directory."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep; arguments are those of sweep.py, in place of both of the above."""
    if binaries() is None:
        print(f"SKIPPED: {HOW_TO_INSTALL}")
        return 0
    given = sys.argv[1:] if arguments is None else arguments
    with a_server() as server:
        for parts in [given] if given else [RUNNING, FOUNDING]:
            with server.database() as url:
                if code := sweep.main([*parts, "--store-url", url]):
                    return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
