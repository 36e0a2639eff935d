"""Loss terms of one mini-batch: the model's features and logits, given to the method's client loss.

Shape legend: B batch, D feature size, M classes, S image size.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, ModelArrays
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.methods.prototypical.balance import balance_factor, balanced
from fedplcc.shared.methods.step import ClientStep, LossTerms, Prototypes, Term
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.ops import TorchOps, to_device
from fedplcc.trainer.models import FeatureModel, load_arrays


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossContext:
    """Everything that the loss uses and that stays the same for all steps of a round.

    Attributes:
        method: Its client loss is computed.
        params: The trainable parameters by name; they change in place.
        start: Copies of them from before the first step.
        references: Frozen models by name; the loss sees their features and logits of every mini-batch.
        prototypes: The round's global prototypes; None where there are none.
        round: Number of the round, from 1.
        kept: Arrays of the client's state that the loss wants.
        scalars: Numbers that came with the task.
        class_weights_M: Weights of classes in the task loss; None for the plain mean.
        ops: Torch operations; caches what it computes of constants.
    """

    method: Method
    config: RunConfig
    params: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    references: Mapping[str, nn.Module]
    prototypes: Prototypes | None
    round: int
    kept: Mapping[str, Tensor] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    class_weights_M: Tensor | None = None
    ops: TorchOps = field(default_factory=TorchOps)


def loss_terms(model: nn.Module, x_B3SS: Tensor, labels_B: Tensor, context: LossContext) -> tuple[LossTerms, Tensor]:
    """Return the method's loss terms for one mini-batch, in float32, and the features `[B, D]` that they are of."""
    extractor = cast(FeatureModel, model)
    features_BD = extractor.features(x_B3SS)
    logits_BM = extractor.classifier(features_BD)
    seen = {name: _seen_by(cast(FeatureModel, each), x_B3SS) for name, each in context.references.items()}
    # Autocast, if the model uses it, ends here: sums of exponentials overflow in less than float32.
    with torch.autocast(x_B3SS.device.type, enabled=False):
        step = ClientStep(
            ops=context.ops,
            features_BD=features_BD.float(),
            logits_BM=logits_BM.float(),
            labels_B=labels_B,
            task_loss=task_loss(logits_BM.float(), labels_B, context.class_weights_M),
            params=context.params,
            start=context.start,
            prototypes=context.prototypes,
            round=context.round,
            total_rounds=context.config.run.rounds,
            reference_features={name: features for name, (features, _) in seen.items()},
            reference_logits={name: logits for name, (_, logits) in seen.items()},
            kept=context.kept,
            scalars=context.scalars,
        )
        return context.method.client_loss(step, context.config.method), features_BD


def task_loss(logits_BM: Tensor, labels_B: Tensor, class_weights_M: Tensor | None = None) -> Tensor:
    """Return the mean cross-entropy of a mini-batch, each image's times the weight of its class."""
    if class_weights_M is None:
        return cross_entropy(logits_BM, labels_B)
    return (class_weights_M[labels_B] * cross_entropy(logits_BM, labels_B, reduction="none")).mean()


def balanced_weights(labels_N: Tensor, num_classes: int) -> Tensor:
    """Return N / (K * N_m) for the N_m images of each class m of the K that have any, `[M]` float32; 0 for the others.

    So every class has the same part of the mean over all images, and the mean of the weights is 1 (docs/algorithms.md, rule
    24.5).
    """
    counts_M = torch.bincount(labels_N.cpu(), minlength=num_classes).double()
    weights_M = counts_M.sum() / ((counts_M > 0).sum() * counts_M.clamp(min=1))
    return torch.where(counts_M > 0, weights_M, 0.0).float().to(labels_N.device)


def _seen_by(reference: FeatureModel, x_B3SS: Tensor) -> tuple[Tensor, Tensor]:
    """Return a frozen model's features `[B, D]` and logits `[B, M]`, float32."""
    with torch.no_grad():
        features_BD = reference.features(x_B3SS)
        return features_BD.float(), reference.classifier(features_BD).float()


def balanced_terms(terms: LossTerms, features_BD: Tensor, hyper: MethodConfig) -> LossTerms:
    """Return the terms of one mini-batch under `method.balance`: see `fedplcc.shared.methods.prototypical.balance`.

    Nothing changes for a method without the key, without prototypes, and where only layers after the features train.

    Args:
        features_BD: The model's features, from which the terms are computed.
    """
    balance = hyper.balance if isinstance(hyper, PrototypeConfig) else 0.0
    if not balance or len(terms) == 1 or not features_BD.requires_grad:
        return terms
    first, *own = terms.items()
    # Terms of coefficients like 1000 would leave the range of float16 on their way to the features.
    largest = max(term.coefficient for _, term in own)
    scaled = {name: Term(term.value, term.coefficient / largest) for name, term in own}
    norms = [_pull(total_loss(part), features_BD) for part in (dict([first]), scaled)]
    task_norm, own_norm = torch.stack(norms).tolist()
    return balanced(terms, balance_factor(task_norm, largest * own_norm, balance))


def _pull(loss: Tensor, features_BD: Tensor) -> Tensor:
    """Return the L2 norm of a loss's gradient with respect to the features; the graph stays for the step."""
    (gradient_BD,) = torch.autograd.grad(
        loss, features_BD, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    norm: Tensor = gradient_BD.float().norm()
    return norm


def total_loss(terms: LossTerms) -> Tensor:
    """Return the sum of coefficient times term, in the method's order; it may be far below zero.

    A coefficient of 1 multiplies nothing, and a term with coefficient 0 is left out. So a method whose own terms are off has
    the bits of the cross-entropy alone.
    """
    scaled = [
        term.value if term.coefficient == 1.0 else term.coefficient * term.value
        for term in terms.values()
        if term.coefficient
    ]
    total: Tensor = scaled[0]
    for value in scaled[1:]:
        total = total + value
    return total


def loss_values(loss: Tensor, terms: LossTerms) -> dict[str, float]:
    """Return the terms by name and their total as "total", in one transfer from the device."""
    scalars = {**{name: term.value.detach() for name, term in terms.items()}, "total": loss.detach()}
    return dict(zip(scalars, torch.stack(list(scalars.values())).tolist(), strict=True))


def reference_models(
    model: nn.Module, received: ModelArrays, state: ClientState | None, method: Method, config: RunConfig
) -> dict[str, nn.Module]:
    """Return the frozen models that the method's loss compares with, by name, on the model's device.

    Args:
        model: Gives architecture and device.
        state: What the client kept from its last committed update; None at its first participation.
    """
    references = {}
    for name, arrays in method.reference_models(received, state, config.method).items():
        reference = copy.deepcopy(model)
        load_arrays(reference, arrays)
        references[name] = reference.eval().requires_grad_(False)
    return references


def loss_arrays(
    model: nn.Module,
    state: ClientState | None,
    received: Mapping[str, ArrayGroup],
    method: Method,
    config: RunConfig,
) -> dict[str, Tensor]:
    """Return what the loss wants of the client's state and of the server arrays that came, on the model's device."""
    device = next(model.parameters()).device
    kept = method.loss_arrays(state, received, config.method)
    return {name: torch.tensor(np.asarray(array), device=device) for name, array in kept.items()}


def prototype_constants(
    prototypes: PrototypeSet, model: nn.Module, data: DeviceImages, config: RunConfig
) -> Prototypes | None:
    """Return a round's global prototypes as constants on the data's device; None where there are none.

    Raises:
        InvalidModel: They have another feature size than the model.
    """
    dim = cast(FeatureModel, model).feature_dim
    if len(prototypes) and prototypes.vectors.shape[1] != dim:
        raise InvalidModel(
            f"the round's prototypes have {prototypes.vectors.shape[1]} features, model {config.model.name!r} has {dim}; "
            "use the same model specification as the run"
        )
    return to_device(prototypes, data.num_classes, data.device)
