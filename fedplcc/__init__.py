"""Federated prototype learning over many owners' data from different domains.

    result = fedplcc.simulate("run.toml")
    result.rounds.frame(), result.model(), result.plot_map()

`simulate` trains a federation in this process, `compare` methods beside each other, and `load_model` returns the result of a
run as a torch module; docs/python.md explains them. `Gateway` and `AsyncGateway` steer a deployed federation; docs/api.md
explains them. All other modules serve the command.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from fedplcc.gateway_client.clients import AsyncGateway, Gateway
    from fedplcc.python_api.client import Client
    from fedplcc.python_api.comparison import ComparisonResult, compare
    from fedplcc.python_api.result import Result
    from fedplcc.python_api.simulation import simulate
    from fedplcc.shared.documents import Event
    from fedplcc.tracking.callbacks import Callback, RoundResult, RunEnd, RunStart, StopRun

__all__ = [
    "AsyncGateway",
    "Callback",
    "Client",
    "ComparisonResult",
    "Event",
    "Gateway",
    "Result",
    "RoundResult",
    "RunEnd",
    "RunStart",
    "StopRun",
    "compare",
    "load_model",
    "simulate",
]

_EXPORTS: Mapping[str, str] = MappingProxyType(
    {
        "AsyncGateway": "fedplcc.gateway_client.clients",
        "Callback": "fedplcc.tracking.callbacks",
        "Client": "fedplcc.python_api.client",
        "ComparisonResult": "fedplcc.python_api.comparison",
        "Event": "fedplcc.shared.documents",
        "Gateway": "fedplcc.gateway_client.clients",
        "Result": "fedplcc.python_api.result",
        "RoundResult": "fedplcc.tracking.callbacks",
        "RunEnd": "fedplcc.tracking.callbacks",
        "RunStart": "fedplcc.tracking.callbacks",
        "StopRun": "fedplcc.tracking.callbacks",
        "compare": "fedplcc.python_api.comparison",
        "simulate": "fedplcc.python_api.simulation",
    }
)
"""Module of each public name. Every command imports this package; only who uses a name waits for its module."""


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    """Return the public names too, for completion in a notebook."""
    return sorted({*globals(), *__all__})


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
        fedplcc.shared.errors.FedplccError: The model or its configuration is missing or wrong.
    """
    # Every command imports this package; only a caller of this function waits for torch.
    from pathlib import Path

    from fedplcc.models.trained_model import read_trained_model

    config_file = None if config is None else Path(config)
    return read_trained_model(Path(path), config_file=config_file, device=device).model
