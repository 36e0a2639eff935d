"""Personal tensors: those of a model that each client keeps for itself, its head or its BatchNorm layers.

The head is what the model's `head_prefixes` name; BatchNorm tensors are those of BatchNorm layers, with their running
statistics. A client begins with the received model. From its first committed update on it puts its own tensors into each
received model, trains from there, and evaluates its own model in that form. The server takes updates without them where they
are not uploaded; the global model then keeps those of round 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.parts.part import ClientEnd, Part, always

Personal = Literal["none", "head", "batch_norm"]
"""Tensors that a client keeps for itself; the names are those of round 0's lists (payloads.py, `TENSOR_LISTS`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalTensors(Part):
    """Tensors that clients keep for themselves.

    Attributes:
        which: `config -> "none" | "head" | "batch_norm"`.
        is_uploaded: `config -> bool`: whether updates have them too, for a global model to evaluate.
    """

    which: Callable[[Any], Personal]
    is_uploaded: Callable[[Any], bool] = always

    def start_model(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: Any
    ) -> ModelArrays | None:
        if state is None or self.which(config) == "none":
            return made
        return {name: state.get(name, array) for name, array in (received if made is None else made).items()}

    local_model = start_model

    def next_state(self, end: ClientEnd, config: Any) -> ClientState:
        return {name: end.trained[name] for name in end.personal}

    def has_local_model(self, config: Any) -> bool:
        return self.which(config) != "none"
