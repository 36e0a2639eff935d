"""Federated prototype learning over many owners' data from different domains.

`load_model` returns the result of a run as a torch module; all other modules serve the command.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_model"]


def load_model(
    path: str | os.PathLike[str], *, config: str | os.PathLike[str] | None = None, device: str = "cpu"
) -> nn.Module:
    """Return a run's model in eval mode.

    Called with images `[N, 3, S, S]`, normalised as the run's `[data]` says (pixels in [0, 1], minus `mean`, over `std`), it
    gives logits `[N, M]` in the order of the run's classes; its `features` gives feature vectors, its `classifier` logits
    of those.

    Args:
        path: Folder of a run, or a model.safetensors in one.
        config: The run's configuration file, for a model without a run.json beside it, or of your own code
            (package.module:factory), which a run.json alone does not make run.
        device: auto, cpu, cuda or cuda:N.

    Raises:
        shared.errors.FedplccError: The model or its configuration is missing or wrong.
    """
    # Every command imports this package; only a caller of this function waits for torch.
    from pathlib import Path

    from fedplcc.models.trained_model import read_trained_model

    config_file = None if config is None else Path(config)
    return read_trained_model(Path(path), config_file=config_file, device=device).model
