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

POINTS = ("store.*", "transition.*", "belonging.*")


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep; further arguments are those of sweep.py, in place of `--quick` and the points above."""
    if binaries() is None:
        print(f"SKIPPED: {HOW_TO_INSTALL}")
        return 0
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--quick", "--points", *POINTS]
    with a_server() as server, server.database() as url:
        return sweep.main([*given, "--store-url", url])


if __name__ == "__main__":
    sys.exit(main())
