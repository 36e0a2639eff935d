"""Local training: one client's steps on its own data in one round.

Nothing here reads a clock, a file or a global random state. On one type of machine the result is a function of the model,
the data and `RoundInputs`.

Shape legend: B batch, S samples seen in the last pass, D feature size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.config.learning_rate import learning_rate
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, ModelArrays
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.step import LossTerms
from fedplcc.shared.types import FloatArray, IntArray, PrototypeSet
from fedplcc.trainer.cancellation import ShouldStop, check, never
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.augmenting.augmentation import Augmentation, ImageChange
from fedplcc.trainer.learning.batches import balanced_batches, batches, batches_per_pass
from fedplcc.trainer.learning.device_images import DeviceImages
from fedplcc.trainer.learning.divergence import TrainingDiverged, cause_in_loss, diverged, is_finite
from fedplcc.trainer.learning.losses import (
    LossContext,
    balanced_terms,
    balanced_weights,
    loss_arrays,
    loss_terms,
    loss_values,
    prototype_constants,
    reference_models,
    total_loss,
)
from fedplcc.trainer.learning.mix_style import MixStyle
from fedplcc.trainer.learning.optimiser import Optimiser
from fedplcc.trainer.learning.phases import planned_phases, training_of
from fedplcc.trainer.models import personal_names, state_arrays
from fedplcc.trainer.reproducibility.determinism import nondeterminism_explained, prepare_torch, seeded
from fedplcc.trainer.reproducibility.randomness import derive_seed

if TYPE_CHECKING:  # one device needs nothing of torch's distributed part
    from fedplcc.trainer.devices.group import Group

OnProgress = Callable[[int, int], None]
"""Called before the first step and after each, with the number of steps done and of all steps."""
OnBatch = Callable[[int], None]
"""Called when the images of a step's mini-batch are there, with their number."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundInputs:
    """Inputs of one client's training in one round, besides its model and its data.

    Attributes:
        method: Its client loss is minimised, with `config.method` as its hyper-parameters.
        round: Number of the round, from 1.
        prototypes: The round's global prototypes; empty before the first aggregation.
        client_state: The state that the client kept from its last committed update; None at its first participation.
        scalars: Numbers that came with the task.
        arrays: Server arrays that came with it, by group; none before the first aggregation.
        received: The global model of the round, where training starts from another model; None where it starts from that.
        keeps_seen: Whether to return the features that the last pass computed. The last pass is as many steps back as a pass
            over the data has; of a sample that came twice in them the latest features count. They are training's own: in
            training mode, of augmented images, under weights that still moved. Keeping them changes nothing else.
        augmentations: Those of `config` that are code of other packages.
        made: What the method's parts made of the client's samples before the training, to be kept.
        rank: Number of the device among those of the training; each but the first has draws of its own.
    """

    config: RunConfig
    method: Method
    round: int
    client_id: str
    prototypes: PrototypeSet = field(default_factory=PrototypeSet.empty)
    client_state: ClientState | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    arrays: Mapping[str, ArrayGroup] = field(default_factory=dict)
    received: ModelArrays | None = None
    keeps_seen: bool = False
    augmentations: Sequence[ImageChange] = ()
    made: ClientState = field(default_factory=dict)
    rank: int = 0

    def seed(self, purpose: str) -> int:
        """Return the seed of one purpose in this client's round."""
        own = (self.rank,) if self.rank else ()
        return derive_seed(purpose, self.config.run.seed, self.client_id, self.round, *own)

    def diverged(self, cause: str, *, has_stepped: bool = True) -> TrainingDiverged:
        """Return the error that names this client and round."""
        return diverged(cause, client_id=self.client_id, round=self.round, has_stepped=has_stepped)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingObserver:
    """Callbacks of a training; none of them changes its result.

    Attributes:
        should_stop: Asked before every mini-batch.
    """

    should_stop: ShouldStop = never
    on_progress: OnProgress = lambda step, steps: None
    on_batch: OnBatch = lambda num_examples: None


NO_OBSERVER = TrainingObserver()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """Results of a finished local training besides the model.

    Attributes:
        losses: Mean of each loss term over the steps, without its coefficient, in the method's order.
        num_clipped_steps: Number of steps whose gradient was longer than `clip_norm`.
        client_state: The state that the client keeps if this update is committed; None where it keeps none.
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
    inputs: RoundInputs,
    observer: TrainingObserver = NO_OBSERVER,
    group: Group | None = None,
) -> LocalTraining:
    """Train the model in place for one round, phase by phase, each with a fresh optimiser; not at all where there is none.

    Args:
        model: Keeps `models.FeatureModel`; holds the model to start from, on the device of `data`.
        inputs: Everything else that the result depends on.
        observer: Told of progress, and asked whether to stop.
        group: The devices that share each mini-batch; None for the data's alone.

    Raises:
        Cancelled: `observer.should_stop()` held; the model is somewhere in between.
        TrainingDiverged: A loss or a gradient was not finite.
        InvalidModel: The prototypes have another feature size than the model, a phase has no parameter to train, the model
            no tensor that a client is to keep or no early features to mix, or one of its operations has no deterministic
            form on the device.
    """
    config, training = inputs.config, inputs.config.training
    prepare_torch(training.threads, data.device)
    phases = planned_phases(model, config, len(data))
    steps = sum(phase.steps for phase in phases)
    received = _received(model, inputs)
    if not phases:
        return LocalTraining(losses={}, num_steps=0, client_state=_next_client_state(model, inputs, received))
    context = _context(model, data, inputs, _trainable(model), received)
    rate = learning_rate(training, inputs.round, config.run.rounds)
    augmentation = Augmentation(training.augment, inputs.seed("augment"), inputs.augmentations)
    plan = _batches(data, inputs)
    made = data.batches(plan, augmentation)
    if group is not None:
        made = group.received(plan, data.labels_N, data.batch_of_none) if group.rank else group.given(made)
    attack = None if training.attack is None else ImageAttack.of(training.attack, data)
    mixing = None if training.mixing is None else MixStyle(training.mixing, inputs.seed("mix_style"))
    first_seen = steps - batches_per_pass(len(data), training.batch_size) + 1 if inputs.keeps_seen else steps + 1
    totals = _Totals()
    num_done = num_skipped = 0
    observer.on_progress(0, steps)
    mixed = nullcontext() if mixing is None else mixing.of(model, config.model.name)
    with seeded(inputs.seed("training"), data.device), nondeterminism_explained(config.model.name), mixed:
        for phase in phases:
            optimiser = Optimiser(phase.params.values(), training, learning_rate=rate, device=data.device)
            forward = _forward(model, context, attack, optimiser)
            with training_of(model, phase):
                if group is not None:
                    forward = group.shared(model, forward)
                for step, (numbers_B, x_B3SS, labels_B) in enumerate(islice(made, phase.steps), start=num_done + 1):
                    check(observer.should_stop)
                    observer.on_batch(len(numbers_B))
                    loss, terms, features_BD = forward(x_B3SS, labels_B)
                    if step >= first_seen:
                        totals.saw(numbers_B, features_BD if group is None else group.gathered(features_BD))
                    values = loss_values(loss, terms)
                    if group is not None:
                        loss, values = group.weighed(loss), group.mean(values)
                    if not all(map(math.isfinite, values.values())):
                        raise inputs.diverged(cause_in_loss(model, step, values), has_stepped=step > 1)
                    totals.lost({name: values[name] for name in terms})
                    norm = optimiser.step(loss)
                    if norm is not None:
                        totals.num_clipped += _is_clipped(norm, step, inputs)
                    observer.on_progress(step, steps)
            num_done += phase.steps
            num_skipped += optimiser.num_skipped
    if inputs.rank:  # the first device has the result
        return LocalTraining(losses={}, num_steps=steps)
    if num_skipped == steps:
        raise inputs.diverged("no step had a finite gradient in float16")
    if not is_finite(model):
        raise inputs.diverged(f"the gradient of step {steps}, the last, was not finite")
    return LocalTraining(
        losses={name: value / steps for name, value in totals.losses.items()},
        num_steps=steps,
        num_clipped_steps=totals.num_clipped,
        client_state=_next_client_state(model, inputs, received),
        seen=totals.latest_seen(data),
    )


class _Totals:
    """Sums over the steps of one training, and the features of its last pass."""

    def __init__(self) -> None:
        self._seen: list[tuple[Tensor, Tensor]] = []
        self.losses: dict[str, float] = {}
        self.num_clipped = 0

    def saw(self, numbers_B: Tensor, features_BD: Tensor) -> None:
        """Keep the features of a step of the last pass."""
        self._seen.append((numbers_B, features_BD.detach().clone()))

    def lost(self, values: Mapping[str, float]) -> None:
        """Add the loss terms of a step."""
        for name, value in values.items():
            self.losses[name] = self.losses.get(name, 0.0) + value

    def latest_seen(self, data: DeviceImages) -> tuple[FloatArray, IntArray] | None:
        """Return the latest features of every sample seen, and its label, by sample number; None where none are kept."""
        if not self._seen:
            return None
        numbers = torch.cat([numbers_B for numbers_B, _ in self._seen]).numpy()
        features = torch.cat([features_BD for _, features_BD in self._seen]).float().cpu().numpy()
        numbers_S, places_from_end = np.unique(numbers[::-1], return_index=True)
        return features[len(numbers) - 1 - places_from_end], data.labels_N.cpu().numpy()[numbers_S]


def _forward(
    model: nn.Module, context: LossContext, attack: ImageAttack | None, optimiser: Optimiser
) -> Callable[[Tensor, Tensor], tuple[Tensor, LossTerms, Tensor]]:
    """Return the function that computes the loss of images, its terms and the features that they are of."""

    def forward(x_B3SS: Tensor, labels_B: Tensor) -> tuple[Tensor, LossTerms, Tensor]:
        if attack is not None:
            x_B3SS = attack.changed(model, x_B3SS, labels_B)
        with optimiser.forward():
            terms, features_BD = loss_terms(model, x_B3SS, labels_B, context)
        terms = balanced_terms(terms, features_BD, context.config.method)
        return total_loss(terms), terms, features_BD

    return forward


def _trainable(model: nn.Module) -> dict[str, Tensor]:
    return {name: param for name, param in model.named_parameters() if param.requires_grad}


def _received(model: nn.Module, inputs: RoundInputs) -> ModelArrays:
    """Return the global model of the round; empty where the method needs none of it."""
    if inputs.received is not None:
        return inputs.received
    is_needed = inputs.method.keeps_client_state or inputs.method.has("reference_models")
    return state_arrays(model) if is_needed else {}


def _context(
    model: nn.Module, data: DeviceImages, inputs: RoundInputs, params: Mapping[str, Tensor], received: ModelArrays
) -> LossContext:
    method, config = inputs.method, inputs.config
    return LossContext(
        method=method,
        config=config,
        params=params,
        references=reference_models(model, received, inputs.client_state, method, config),
        start={name: param.detach().clone() for name, param in params.items()},
        prototypes=prototype_constants(inputs.prototypes, model, data, config),
        round=inputs.round,
        kept=loss_arrays(model, inputs.client_state, inputs.arrays, method, config),
        scalars=inputs.scalars,
        class_weights_M=_class_weights(data, config),
    )


def _batches(data: DeviceImages, inputs: RoundInputs) -> Iterator[Tensor]:
    """Return the sample numbers of each mini-batch, without end."""
    seed, client_id, round, training = inputs.config.run.seed, inputs.client_id, inputs.round, inputs.config.training
    if training.batches == "balanced":
        labels_N = data.labels_N.cpu()
        return balanced_batches(labels_N, training.batch_size, seed=seed, client_id=client_id, round=round)
    return batches(len(data), training.batch_size, seed=seed, client_id=client_id, round=round)


def _class_weights(data: DeviceImages, config: RunConfig) -> Tensor | None:
    if config.training.class_weights == "none":
        return None
    return balanced_weights(data.labels_N, len(config.data.classes))


def _is_clipped(norm: float, step: int, inputs: RoundInputs) -> bool:
    """Whether a gradient of this norm was longer than `clip_norm`."""
    if not math.isfinite(norm):
        raise inputs.diverged(f"the gradient of step {step} is {norm}")
    clip_norm = inputs.config.training.clip_norm
    return clip_norm is not None and norm > clip_norm


def _next_client_state(model: nn.Module, inputs: RoundInputs, received: ModelArrays) -> ClientState | None:
    """Return the state to keep after this training; None where the method keeps none."""
    if not inputs.method.keeps_client_state:
        return None
    config, trained = inputs.config, state_arrays(model)
    personal = inputs.method.personal_part(config.method)
    end = ClientEnd(
        received=received,
        trained=trained,
        state=inputs.client_state,
        round=inputs.round,
        parameters=tuple(_trainable(model)),
        personal=personal_names(model, personal, config.model.name),
        made=inputs.made,
    )
    return inputs.method.kept_after(end, config.method) or None
