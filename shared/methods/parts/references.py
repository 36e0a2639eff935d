"""Reference models: frozen models under which a client's loss wants the features and logits of every mini-batch too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.parts.part import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceModels(Part):
    """Reference models of a method.

    Attributes:
        models: `(received, state, config) -> models by name`; none where the loss wants none. Those that are made of the
            received model alone let the method act in round 1.
    """

    models: Callable[[ModelArrays, ClientState | None, Any], Mapping[str, ModelArrays]]

    def reference_models(
        self, received: ModelArrays, state: ClientState | None, config: Any
    ) -> Mapping[str, ModelArrays]:
        return self.models(received, state, config)
