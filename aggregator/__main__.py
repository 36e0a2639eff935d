"""`python -m fedplcc.aggregator`: settings from flags, the environment and a file, then serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedplcc.aggregator import app
from fedplcc.shared.config.settings import AggregatorSettings, run_from_command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve; returns the exit code (see app.py)."""
    program, description = "python -m fedplcc.aggregator", "Aggregate a federation's rounds."
    return run_from_command_line(AggregatorSettings, app.run, program, description, arguments)


if __name__ == "__main__":
    sys.exit(main())
