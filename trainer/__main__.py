"""`python -m trainer`: read settings from flags, the environment and a file, then act for a client."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from shared.config.settings import TrainerSettings, run_from_command_line
from trainer import app
from trainer.joining import join_if_invited


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and run the trainer; returns the exit code (see app.py)."""
    program, description = "python -m trainer", "Train for one client of a federation."
    return run_from_command_line(TrainerSettings, app.run, program, description, arguments, join_if_invited)


if __name__ == "__main__":
    sys.exit(main())
