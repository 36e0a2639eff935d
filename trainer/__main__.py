"""`python -m fedplcc.trainer`: read settings from flags, the environment and a file, then act for a client."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedplcc.shared.config.settings import TrainerSettings, run_from_command_line
from fedplcc.trainer import app
from fedplcc.trainer.joining import join_if_invited


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the flags and run the trainer; returns the exit code (see app.py)."""
    program, description = "python -m fedplcc.trainer", "Train for one client of a federation."
    return run_from_command_line(TrainerSettings, app.run, program, description, arguments, join_if_invited)


if __name__ == "__main__":
    sys.exit(main())
