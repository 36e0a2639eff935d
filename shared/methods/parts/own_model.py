"""Own model: a whole model that a client keeps, evaluates, and may train from in the place of the received one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.parts.part import Part, always

ClientModel = Callable[[ModelArrays, ClientState | None, Any], ModelArrays | None]
"""`(received, state, config) -> model`; the state is that of the client's last committed update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel(Part):
    """A model of each client.

    Attributes:
        local: The model that a client evaluates beside the global one, or in its place; None from it where it has none yet.
        start: The model from which it trains; None from it, or in its place, for the received one.
        alone: The model of the client's images alone that it evaluates too, for what joining is worth; None from it where it
            has none yet, in its place where the method makes none.
        is_kept: `config -> bool`: whether clients have such a model.
        is_shared: `config -> bool`: whether updates carry the trained model all the same. Where they do not, the global
            model stays what round 0 made it.
    """

    local: ClientModel
    start: ClientModel | None = None
    alone: ClientModel | None = None
    is_kept: Callable[[Any], bool] = always
    is_shared: Callable[[Any], bool] = always

    def start_model(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: Any
    ) -> ModelArrays | None:
        return made if self.start is None else self.start(received, state, config)

    def shares_model(self, config: Any) -> bool:
        return self.is_shared(config)

    def has_local_model(self, config: Any) -> bool:
        return self.is_kept(config)

    def local_model(
        self, received: ModelArrays, made: ModelArrays | None, state: ClientState | None, config: Any
    ) -> ModelArrays | None:
        return self.local(received, state, config)

    def has_alone_model(self, config: Any) -> bool:
        return self.alone is not None

    def alone_model(self, received: ModelArrays, state: ClientState | None, config: Any) -> ModelArrays | None:
        return None if self.alone is None else self.alone(received, state, config)
