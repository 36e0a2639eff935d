"""Phases of a client's training: which parameters each moves, for how many steps, and the modes of the model's layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods.parts.phases import Trains
from fedplcc.trainer.learning.batches import batches_per_pass, num_steps
from fedplcc.trainer.models import head_modules, head_names
from fedplcc.trainer.models.partial import hold_still


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedPhase:
    """A phase of a training on so many samples.

    Attributes:
        trains: Part of the model that is trained.
    """

    trains: Trains
    params: Mapping[str, Tensor]
    steps: int


def planned_phases(model: nn.Module, config: RunConfig, num_examples: int) -> Sequence[PlannedPhase]:
    """Return the phases of a client's training in a round.

    Raises:
        InvalidModel: A phase has no parameter that requires a gradient.
    """
    training = config.training
    return [
        PlannedPhase(
            trains=phase.trains,
            params=_params(model, phase.trains, config.model.name),
            steps=num_steps(training, num_examples)
            if phase.epochs is None
            else phase.epochs * batches_per_pass(num_examples, training.batch_size),
        )
        for phase in config.algorithm.phases(config.method)
    ]


@contextmanager
def training_of(model: nn.Module, phase: PlannedPhase) -> Iterator[None]:
    """Put the phase's part of the model into training mode; the other part is in evaluation mode and has no gradient."""
    model.train()
    if phase.trains == "all":
        yield
        return
    heads = head_modules(model)
    for part in model.modules():
        # Not eval(), which would reach a head within the base.
        part.training = (part in heads) == (phase.trains == "head")
    hold_still(model)
    frozen = [param for name, param in model.named_parameters() if param.requires_grad and name not in phase.params]
    for param in frozen:
        param.requires_grad_(False)
    try:
        yield
    finally:
        for param in frozen:
            param.requires_grad_(True)


def _params(model: nn.Module, trains: Trains, name: str) -> dict[str, Tensor]:
    params: dict[str, Tensor] = {key: param for key, param in model.named_parameters() if param.requires_grad}
    if trains != "all":
        heads = head_names(model)
        params = {key: param for key, param in params.items() if (key in heads) == (trains == "head")}
    if not params:
        part = "" if trains == "all" else f" of its {trains}"
        raise InvalidModel(f"model {name!r} has no parameter{part} that requires a gradient")
    return params
