"""The option for the state directory of an aggregator on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateDir = Annotated[
    Path,
    typer.Option(
        help="State directory of the aggregator, which runs on this host; its owner administers it.",
        file_okay=False,
        envvar="FEDPLCC_STATE_DIR",
    ),
]
DEFAULT_STATE_DIR = Path("fedplcc-state/aggregator")
