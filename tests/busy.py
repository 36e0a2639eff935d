"""The tests beside processes that burn the cores: `make test-busy`, or `make test-busy ARGS="-k words"` for some.

Each of these processes is ended by its id when the tests have ended. It ends by itself when this process is gone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.support import ROOT

LIMIT_S = 3000
"""Time that a test without a limit of its own may take; ten times what it may on a quiet machine."""
BURN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def burning(number: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Keep a number of processes busy within a block."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN, str(os.getpid())]) for _ in range(number)]
    try:
        yield burners
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest with the arguments after `--`; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.busy", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--burners", type=int, default=4, metavar="N", help="processes that burn the cores; 4 by default"
    )
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="arguments of pytest, after --")
    chosen = parser.parse_args(arguments)
    command = [sys.executable, "-m", "pytest", "-o", f"timeout={LIMIT_S}", *chosen.pytest]
    with burning(chosen.burners):
        return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
