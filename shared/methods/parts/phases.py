"""Phases of a client's training in a round, each of a part of the model and with an optimiser of its own.

The head is what the model's `head_prefixes` name, the base all else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedplcc.shared.methods.parts.part import Part

Trains = Literal["all", "head", "base"]
"""Part of a model that is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of a client's training in a round.

    Attributes:
        trains: Part that is trained; the other one is in evaluation mode and has no gradient.
        epochs: Passes over the client's samples; None for as long as `[training]` says.
    """

    trains: Trains = "all"
    epochs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPhases(Part):
    """Phases of a method's training; a method without this part has one that trains everything.

    Attributes:
        phases: `config -> phases` in their order; none where nothing is trained, and the server makes the model.
    """

    phases: Callable[[Any], tuple[Phase, ...]]
