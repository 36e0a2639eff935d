"""What a client keeps: named arrays that are staged with an update, used once that is committed, and never leave the client.

In a run whose data change a client may need another state for a stage, made of its samples before it first trains there.

Shape legend: N samples of a client, D feature size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.arrays import ArrayGroup, ClientState
from fedplcc.shared.methods.parts.part import ClientEnd, Part
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBegin:
    """A client's samples under the received model, at its first participation in a stage of a run whose data change."""

    features_ND: FloatArray
    """In evaluation mode, without augmentation."""
    labels_N: IntArray
    num_classes: int
    state: ClientState
    """State kept from its last committed update."""
    scalars: Mapping[str, float]
    """Numbers that came with the task: `stage` and `pass` among them, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """What a client remembers of stages.

    Attributes:
        begins: `(state, scalars, config) -> bool`: whether `state` is to be made before this training; asked where the
            client kept a state.
        state: `(begin, config) -> state` for the stage, made of the client's samples before it first trains there.
        with_report: `(kept, state, prototypes, scalars, config) -> state`: what the client keeps after its training, with
            what it takes of the prototypes that it sends; `state` is the one before.
    """

    begins: Callable[[ClientState, Mapping[str, float], Any], bool]
    state: Callable[[StageBegin, Any], ClientState]
    with_report: Callable[[ClientState, ClientState | None, PrototypeSet, Mapping[str, float], Any], ClientState]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState(Part):
    """State of a method's clients.

    Attributes:
        after: `(end, config) -> state`: what a client keeps after its training; nothing where it is empty.
        for_loss: `(state, config) -> arrays by name`: what of it the loss wants in every mini-batch, as `step.kept`. None
            where it wants nothing.
        of_stages: What it remembers of stages; None where stages change no state.
    """

    after: Callable[[ClientEnd, Any], ClientState] | None = None
    for_loss: Callable[[ClientState, Any], ArrayGroup] | None = None
    of_stages: StageMemory | None = None

    def loss_arrays(self, state: ClientState | None, received: Mapping[str, ArrayGroup], config: Any) -> ArrayGroup:
        return {} if self.for_loss is None or state is None else self.for_loss(state, config)

    def next_state(self, end: ClientEnd, config: Any) -> ClientState:
        return {} if self.after is None else self.after(end, config)
