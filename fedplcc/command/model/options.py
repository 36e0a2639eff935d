"""Options that all `fedplcc model` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedplcc.command import completion

Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="Folder of a run, as simulate, demo and run fetch leave it, or the model.safetensors in one.",
    ),
]
Device = Annotated[
    str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:N.", autocompletion=completion.devices)
]
