"""`python -m trainer`: settings from flags, the environment and a file, then act for a client."""

from __future__ import annotations

import sys

from shared.config import TrainerSettings, from_command_line
from shared.errors import InvalidConfig
from trainer import app


def main() -> int:
    """Parse the flags and run; returns the exit code (see app.py)."""
    program = "python -m trainer"
    try:
        settings = from_command_line(TrainerSettings, program, "Train for one client of a federation.")
    except InvalidConfig as error:
        print(f"{program}: {error.detail}", file=sys.stderr)
        return app.EXIT_CONFIG
    return app.run(settings)


if __name__ == "__main__":
    sys.exit(main())
