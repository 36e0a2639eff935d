"""Every attack at once on a federation with default settings: `python -m tests.chaos.siege [--seconds 120]`.

Exits 1 on a violation: see run.py for what must hold.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.siege.mutant import MUTANTS
from tests.chaos.siege.run import besiege

SECONDS = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Besiege a federation, print what came of it, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.siege", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--folder", type=Path, help="where logs and state stay; a folder that is removed if not given")
    parser.add_argument("--only", default="", help="pattern of the names of the attacks; all if not given")
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS], help="bound that is taken from the aggregator")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(1))  # ends what was started
    with tempfile.TemporaryDirectory() as folder:
        outcome = besiege(options.folder or Path(folder), options.seconds, mutant=options.mutant, only=options.only)
    print(outcome.report())
    violations = outcome.violations(is_timed=True)
    for violation in violations:
        print(f"violation: {violation}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
