"""Parts of a model at a client: the tensors that it keeps for itself, and the part that a phase of its training trains.

The head is what the model's `head_prefixes` name, the base all else; BatchNorm tensors are those of BatchNorm layers, with
their running statistics. A client begins with the received model. From its first committed update on it puts its own
tensors into each received model, trains from there, and evaluates its own model in that form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

if TYPE_CHECKING:
    from shared.methods.base import MethodConfig

Personal = Literal["none", "head", "batch_norm"]
"""Tensors that a client keeps for itself; the names are those of round 0's lists (shared/types.py, `TENSOR_LISTS`)."""
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


def one_phase(config: MethodConfig) -> tuple[Phase, ...]:
    """Return the one phase that trains everything, whatever the configuration."""
    return (Phase(),)


def with_personal(
    model: Mapping[str, npt.NDArray[Any]], state: Mapping[str, npt.NDArray[Any]]
) -> dict[str, npt.NDArray[Any]]:
    """Return the model with a client's own tensors in the place of its tensors of the same names."""
    return {name: state.get(name, array) for name, array in model.items()}
