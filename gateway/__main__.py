"""`python -m gateway`: settings from flags, the environment and a file, then serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gateway import app
from shared.config import GatewaySettings, from_command_line
from shared.errors import InvalidConfig


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve; returns the exit code (see app.py)."""
    program = "python -m gateway"
    try:
        settings = from_command_line(GatewaySettings, program, "Serve an aggregator's runs over REST.", arguments)
    except InvalidConfig as error:
        print(f"{program}: {error.detail}", file=sys.stderr)
        return app.EXIT_CONFIG
    return app.run(settings)


if __name__ == "__main__":
    sys.exit(main())
