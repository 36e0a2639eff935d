"""Options that all `fedplcc model` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedplcc.command import completion
from fedplcc.command.exit_codes import say

if TYPE_CHECKING:
    from fedplcc.models.trained_model import TrainedModel

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


def read_model(path: Path, config: Path | None, device: str) -> TrainedModel:
    """Read a model, and say what nobody says of it; see `read_trained_model`."""
    from fedplcc.models.trained_model import read_trained_model

    found = read_trained_model(path, config_file=config, device=device)
    if found.doubt:
        say(found.doubt)
    return found
