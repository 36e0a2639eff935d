"""`python -m aggregator`: settings from flags, the environment and a file, then serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from aggregator import app
from shared.config import AggregatorSettings, from_command_line
from shared.errors import InvalidConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve; returns the exit code (see app.py)."""
    program = "python -m aggregator"
    try:
        settings = from_command_line(AggregatorSettings, program, "Aggregate a federation's rounds.", arguments)
    except InvalidConfig as error:
        print(f"{program}: {error.detail}", file=sys.stderr)
        return app.EXIT_CONFIG
    return app.run(settings)


if __name__ == "__main__":
    sys.exit(main())
