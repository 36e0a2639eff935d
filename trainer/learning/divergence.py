"""Divergence: a loss, a gradient, a weight or a feature that is infinite or NaN ends a client's training by name."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from fedplcc.shared.codes import Code
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.types import FloatArray


class TrainingDiverged(FedplccError):
    """The loss, a gradient or a feature became infinite or NaN; the client has no update for this round."""

    code = Code.FAILED_PRECONDITION
    reason = "TRAINING_DIVERGED"


def diverged(cause: str, *, client_id: str, round: int, has_stepped: bool = True) -> TrainingDiverged:
    """Return the error, with what the operator can change: before the first step, no learning rate of this site's."""
    advice = (
        "lower training.learning_rate or set training.clip_norm"
        if has_stepped
        else "no step was made, so neither this site nor its learning rate is the cause, but what it was sent: see the "
        "run's warnings for the update behind it"
    )
    return TrainingDiverged(
        f"training of client {client_id!r} in round {round} diverged: {cause}; {advice}",
        client_id=client_id,
        round=round,
    )


def cause_in_loss(model: nn.Module, step: int, losses: Mapping[str, float]) -> str:
    """Return where the first value that is not finite came from.

    Args:
        model: The model as it was before the step.
        step: Number of the step, from 1.
        losses: The loss terms and their total; one of them is not finite.
    """
    if is_finite(model):
        name, value = next((name, value) for name, value in losses.items() if not math.isfinite(value))
        return f"the loss {name!r} of step {step} is {value}"
    if step == 1:
        return "the global model holds values that are not finite"
    return f"the gradient of step {step - 1} was not finite"


def check_features(features_ND: FloatArray, *, client_id: str, round: int) -> None:
    """Check the features that prototypes are made of. Finite but huge weights may give features that are not finite.

    Raises:
        TrainingDiverged: A feature is not finite.
    """
    if not np.isfinite(features_ND).all():
        raise diverged("the trained model gives features that are not finite", client_id=client_id, round=round)


def is_finite(model: nn.Module) -> bool:
    """Whether every floating-point value of the model's state is finite."""
    finite = [value.isfinite().all() for value in model.state_dict().values() if value.is_floating_point()]
    return not finite or bool(torch.stack(finite).all())  # one transfer: the device finishes its work at each
