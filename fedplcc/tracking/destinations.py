"""The texts that name trackers, KIND[:WHERE], and the trackers behind them. A tracker's library loads when it is named."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fedplcc.shared.config.sections import unknown
from fedplcc.shared.errors import InvalidConfig
from fedplcc.tracking.tracker import Tracker

KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tensorboard": ("tensorboard_tracker", "TensorboardTracker"),
        "mlflow": ("mlflow_tracker", "MlflowTracker"),
        "wandb": ("wandb_tracker", "WandbTracker"),
        "jsonl": ("jsonl_tracker", "JsonlTracker"),
    }
)
"""Module and class by kind; one line adds a tracker."""


def make_trackers(texts: Sequence[str]) -> list[Tracker]:
    """Return the trackers that texts such as `mlflow:http://127.0.0.1:5000` name.

    Raises:
        InvalidConfig: There is no such kind.
        ModuleNotFoundError: A tracker's library is not installed; the sentence names the command that installs it.
    """
    return [_tracker(text) for text in dict.fromkeys(texts)]


def _tracker(text: str) -> Tracker:
    kind, _, where = text.partition(":")
    if kind not in KINDS:
        raise InvalidConfig(f"--log {text}: {unknown('tracker', kind, KINDS)}; write KIND or KIND:WHERE")
    module, name = KINDS[kind]
    try:
        made = getattr(importlib.import_module(f"fedplcc.tracking.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != kind:
            raise
        raise ModuleNotFoundError(
            f"the tracker {kind} is not installed: pip install 'fedplcc[{kind}]'", name=kind
        ) from error
    tracker: Tracker = made(where)
    return tracker
