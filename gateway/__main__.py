"""`python -m fedplcc.gateway`: settings from flags, the environment and a file, then serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedplcc.gateway import app
from fedplcc.shared.config.settings import GatewaySettings, run_from_command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and serve; return the exit code (see app.py)."""
    program, description = "python -m fedplcc.gateway", "Serve an aggregator's runs over REST."
    return run_from_command_line(GatewaySettings, app.run, program, description, arguments)


if __name__ == "__main__":
    sys.exit(main())
