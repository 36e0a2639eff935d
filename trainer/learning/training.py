"""One client's part of a round: SGD on its own data from the global model, or from one of its own.

Nothing here reads a clock, a file or a global random state: the result is a function of (model, data, configuration,
prototypes, client state, round, client id) on one type of machine.

Shape legend: B batch, N samples of the client, S of them that were seen, D feature size, M classes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from shared.config.run import RunConfig
from shared.errors import Code, FedplccError, InvalidModel
from shared.methods.base import ClientEnd, ClientState, ClientStep, LossTerms, Method, ModelArrays, Prototypes
from shared.types import FloatArray, IntArray, PrototypeSet
from trainer.cancellation import ShouldStop, check, never
from trainer.learning.batches import batches, batches_per_pass, num_steps
from trainer.learning.device_images import Augmentation, DeviceImages
from trainer.learning.ops import TorchOps, to_device
from trainer.models import FeatureModel, load_arrays, state_arrays
from trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch, seeded
from trainer.reproducibility.randomness import derive_seed

OnProgress = Callable[[int, int], None]
"""Called before the first step and after each, with the number of steps done and of all steps."""
OnBatch = Callable[[int], None]
"""Called when the images of a step's mini-batch are there, with their number."""


class TrainingDiverged(FedplccError):
    """The loss, a gradient or a feature became infinite or NaN; the client has no update for this round."""

    code = Code.FAILED_PRECONDITION
    reason = "TRAINING_DIVERGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """What is known of a finished local training besides the model.

    Attributes:
        losses: Mean of each loss term over the steps, without its coefficient, in the method's order.
        num_steps: Mini-batches.
        num_clipped_steps: Those whose gradient was longer than `clip_norm`.
        client_state: What the client keeps for its next participation, if this update is committed; None for nothing.
        seen: Features `[S, D]`, float32, and labels `[S]` of the samples that the last pass saw, in the data's order and in
            host memory; None unless they were asked for.
    """

    losses: Mapping[str, float]
    num_steps: int
    num_clipped_steps: int = 0
    client_state: ClientState | None = None
    seen: tuple[FloatArray, IntArray] | None = None


def local_train(
    model: nn.Module,
    data: DeviceImages,
    config: RunConfig,
    method: Method,
    prototypes: PrototypeSet,
    *,
    round: int,
    client_id: str,
    client_state: ClientState | None = None,
    received: ModelArrays | None = None,
    keeps_seen: bool = False,
    should_stop: ShouldStop = never,
    on_progress: OnProgress | None = None,
    on_batch: OnBatch | None = None,
) -> LocalTraining:
    """Train the model in place for one round, with a fresh optimiser.

    Args:
        model: Keeps `models.FeatureModel`; holds the model to start from, on the device of `data`.
        data: The client's training images.
        config: The run.
        method: Whose client loss is minimised, with `config.method` as its hyper-parameters.
        prototypes: The round's global prototypes, empty before the first aggregation.
        round: Number of the round, from 1.
        client_id: Whose data it is.
        client_state: What the client kept from its last committed update; None at its first participation.
        received: The global model of the round, where training starts from another; if None it starts from that.
        keeps_seen: Whether to give back the features that the last pass saw, as many steps back as a pass over the data has,
            and of a sample that came twice in them the latest. They are training's own: in training mode, of augmented
            images, under weights that still moved. Keeping them changes nothing else.
        should_stop: Asked before every mini-batch.
        on_progress: Told before the first mini-batch and after every one.
        on_batch: Told when a mini-batch's images are there, before anything is computed from them.

    Raises:
        Cancelled: `should_stop()` held; the model is somewhere in between.
        TrainingDiverged: A loss or a gradient was not finite.
        InvalidModel: The prototypes have another feature size than the model, nothing in the model can be trained, or an
            operation in it has no deterministic form on the device.
    """
    training, seed = config.training, config.run.seed
    prepare_torch(training.threads, data.device)
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    if not params:
        raise InvalidModel(f"model {config.model.name!r} has no parameter that requires a gradient")
    if received is None:
        received = state_arrays(model) if method.keeps_client_state or method.reference_models else {}
    context = _Context(
        method=method,
        config=config,
        params=params,
        references=_reference_models(model, received, client_state, method, config),
        start={name: param.detach().clone() for name, param in params.items()},
        prototypes=prototype_constants(prototypes, model, data, config),
        round=round,
    )
    optimizer = torch.optim.SGD(
        params.values(), training.learning_rate, training.momentum, weight_decay=training.weight_decay, fused=True
    )
    augmentation = Augmentation(training.augment, derive_seed("augment", seed, client_id, round))
    steps = num_steps(training, len(data))
    plan = batches(len(data), training.batch_size, seed=seed, client_id=client_id, round=round)
    first_seen = steps - batches_per_pass(len(data), training.batch_size) + 1 if keeps_seen else steps + 1
    seen: list[tuple[Tensor, Tensor]] = []
    sums: dict[str, float] = {}
    num_clipped = 0
    model.train()
    random_states = seeded(derive_seed("training", seed, client_id, round), data.device)
    if on_progress is not None:
        on_progress(0, steps)
    with random_states, nondeterminism_explained(config.model.name):
        for step, numbers_B in enumerate(islice(plan, steps), start=1):
            check(should_stop)
            batch = data.batch(numbers_B, augmentation)
            if on_batch is not None:
                on_batch(len(numbers_B))
            terms, features_BD = _loss_terms(model, *batch, context)
            if step >= first_seen:
                seen.append((numbers_B, features_BD.detach().clone()))
            loss = total_loss(terms)
            values = _values(loss, terms)
            if not all(map(math.isfinite, values.values())):
                raise _diverged(_cause(model, step, values), client_id, round)
            for name in terms:
                sums[name] = sums.get(name, 0.0) + values[name]
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if training.clip_norm is not None:
                norm = float(nn.utils.clip_grad_norm_(params.values(), training.clip_norm))
                if not math.isfinite(norm):
                    raise _diverged(f"the gradient of step {step} is {norm}", client_id, round)
                num_clipped += norm > training.clip_norm
            optimizer.step()
            if on_progress is not None:
                on_progress(step, steps)
    if not _is_finite(model):
        raise _diverged(f"the gradient of step {steps}, the last, was not finite", client_id, round)
    kept: ClientState = {}
    if method.next_client_state is not None:
        end = ClientEnd(received=received, trained=state_arrays(model), state=client_state, round=round)
        kept = method.next_client_state(end, config.method)
    losses = {name: value / steps for name, value in sums.items()}
    return LocalTraining(
        losses=losses,
        num_steps=steps,
        num_clipped_steps=num_clipped,
        client_state=kept or None,
        seen=_latest(seen, data) if seen else None,
    )


def _latest(seen: list[tuple[Tensor, Tensor]], data: DeviceImages) -> tuple[FloatArray, IntArray]:
    """The newest feature of every sample that these mini-batches had, and its label, by sample number."""
    numbers = torch.cat([numbers_B for numbers_B, _ in seen]).numpy()
    features = torch.cat([features_BD for _, features_BD in seen]).float().cpu().numpy()
    numbers_S, places_from_end = np.unique(numbers[::-1], return_index=True)
    return features[len(numbers) - 1 - places_from_end], data.labels_N.cpu().numpy()[numbers_S]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What is the same for every step of a round."""

    method: Method
    config: RunConfig
    params: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    references: Mapping[str, nn.Module]
    prototypes: Prototypes | None
    round: int
    ops: TorchOps = field(default_factory=TorchOps)


def _loss_terms(model: nn.Module, x_B3SS: Tensor, labels_B: Tensor, context: _Context) -> tuple[LossTerms, Tensor]:
    """The method's loss terms for one mini-batch, in float32, and the features `[B, D]` that they are of."""
    extractor = cast(FeatureModel, model)
    features_BD = extractor.features(x_B3SS)
    logits_BM = extractor.classifier(features_BD)
    with torch.no_grad():
        reference_features = {
            name: cast(FeatureModel, reference).features(x_B3SS).float()
            for name, reference in context.references.items()
        }
    # Autocast, if the model uses it, ends here: sums of exponentials overflow in less than float32.
    with torch.autocast(x_B3SS.device.type, enabled=False):
        step = ClientStep(
            ops=context.ops,
            features_BD=features_BD.float(),
            logits_BM=logits_BM.float(),
            labels_B=labels_B,
            task_loss=cross_entropy(logits_BM.float(), labels_B),
            params=context.params,
            start=context.start,
            prototypes=context.prototypes,
            round=context.round,
            total_rounds=context.config.run.rounds,
            reference_features=reference_features,
        )
        return context.method.client_loss(step, context.config.method), features_BD


def _reference_models(
    model: nn.Module, received: ModelArrays, state: ClientState | None, method: Method, config: RunConfig
) -> dict[str, nn.Module]:
    """The models beside which the method's loss looks at every mini-batch, frozen, on the model's device."""
    if method.reference_models is None:
        return {}
    references = {}
    for name, arrays in method.reference_models(received, state, config.method).items():
        reference = copy.deepcopy(model)
        load_arrays(reference, arrays)
        references[name] = reference.eval().requires_grad_(False)
    return references


def total_loss(terms: LossTerms) -> Tensor:
    """Return the sum of coefficient times term, in the method's order.

    A product with 1 is not formed, and a term with coefficient 0 is not there: so a method whose own terms are off has the
    bits of the cross-entropy alone. The sum may be far below zero and says nothing about health.
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


def _values(loss: Tensor, terms: LossTerms) -> dict[str, float]:
    """The terms and their total as numbers, in one transfer from the device."""
    scalars = {**{name: term.value.detach() for name, term in terms.items()}, "total": loss.detach()}
    return dict(zip(scalars, torch.stack(list(scalars.values())).tolist(), strict=True))


def _cause(model: nn.Module, step: int, values: Mapping[str, float]) -> str:
    """Say where the first value that is not finite came from; the model has not changed since the step before."""
    if _is_finite(model):
        name, value = next((name, value) for name, value in values.items() if not math.isfinite(value))
        return f"the loss {name!r} of step {step} is {value}"
    if step == 1:
        return "the global model holds values that are not finite"
    return f"the gradient of step {step - 1} was not finite"


def check_features(features_ND: FloatArray, *, client_id: str, round: int) -> None:
    """Check the features of which a client makes its prototypes: under finite weights that have become huge they may not be.

    Raises:
        TrainingDiverged: One is not finite.
    """
    if not np.isfinite(features_ND).all():
        raise _diverged("the trained model gives features that are not finite", client_id, round)


def _is_finite(model: nn.Module) -> bool:
    finite = [value.isfinite().all() for value in model.state_dict().values() if value.is_floating_point()]
    return not finite or bool(torch.stack(finite).all())  # one question to the device, which ends its work at every one


def _diverged(what: str, client_id: str, round: int) -> TrainingDiverged:
    return TrainingDiverged(
        f"training of client {client_id!r} in round {round} diverged: {what}; lower training.learning_rate or set "
        "training.clip_norm",
        client_id=client_id,
        round=round,
    )
