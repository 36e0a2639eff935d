"""`[training]`: local training besides data and method. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from fedplcc.shared.config.sections import FACTORY, InvalidKey, Section, check_keys, form, validate
from fedplcc.shared.config.tables.adversarial import AdversarialSettings
from fedplcc.shared.config.tables.mix_style import MixStyleSettings

AUGMENTATIONS = ("crop", "resized_crop", "flip", "color", "gray")
"""Augmentations of this package."""


def _augmentation(name: str) -> str:
    if name not in AUGMENTATIONS and not FACTORY.fullmatch(name):
        raise ValueError(f"it must be one of {', '.join(AUGMENTATIONS)}, or package.module:factory")
    return name


def has_frozen_layers(train: str) -> bool:
    """Whether the first layers of a model stay as every site has them, so that each image goes through them once."""
    return train == "head" or train.startswith("last:")


AugmentationName = Annotated[str, AfterValidator(_augmentation)]
"""One of `AUGMENTATIONS`, or package.module:factory."""


TRAINED = form(r"^(all|head|norm|lora|last:[1-9]\d?)$", "write all, head, norm, lora or last:N with N from 1 to 99")


class TrainingSection(Section):
    """`[training]`: settings of local training besides data and method."""

    train: str = Field("all", pattern=TRAINED)
    """Part of the model that is trained. Only that travels; the rest is the backbone that model.weights names, which every
    site has. all: everything, which also travels; head: the layers above the backbone, on features that a site computes once
    for each image; last:N: these and the backbone's last N blocks, on what the blocks before make of each image, once too;
    norm: the head and the backbone's normalisation layers; lora: the head and a change of rank 8 of each linear layer and
    of each convolution that mixes channels."""
    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    """Mini-batches per round. Set either this or `local_epochs`; 10 if neither is set."""
    local_epochs: int | None = Field(None, ge=1, le=100_000)
    """Passes over the client's training set per round."""
    batch_size: int = Field(32, ge=2, le=65_536)
    """Images per mini-batch; at least 2, for batch normalisation."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """Optimiser: sgd with `momentum`, or adamw (Loshchilov and Hutter, ICLR 2019; betas 0.9 and 0.999). Each round starts
    with a new one."""
    learning_rate: float = Field(0.01, gt=0, le=10)
    """Learning rate; adamw usually needs 0.001 or less."""
    schedule: Literal["constant", "cosine", "step"] = "constant"
    """Learning rate over the rounds: constant, falling along half a cosine over `schedule_rounds`, or multiplied by
    `step_factor` every `step_rounds` rounds."""
    warmup_rounds: int = Field(0, ge=0, le=100_000)
    """First rounds, in which the learning rate rises in equal steps; round warmup_rounds + 1 is the first with the whole
    rate, and the schedule begins with it."""
    schedule_rounds: int | None = Field(None, ge=1, le=100_000)
    """Rounds over which the cosine falls, warm-up included; later ones keep its last rate. run.rounds if not set; a run that
    may go on to more rounds sets it."""
    step_rounds: int | None = Field(None, ge=1, le=100_000)
    """Rounds between two steps of the schedule "step"; that schedule needs it."""
    step_factor: float | None = Field(None, gt=0, lt=1)
    """Factor of each step of the schedule "step"; 0.1 if not set."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of sgd; each round starts from zero velocity. adamw does not use it."""
    weight_decay: float = Field(1e-5, ge=0, le=1)
    """Weight decay: with sgd this factor times the weights is added to their gradient, with adamw the weights shrink by the
    learning rate times this factor in each step."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the model's operations in training: with bfloat16 and float16 torch's autocast chooses those that are
    safe. Weights, losses, prototypes and evaluation stay float32. Meant for accelerators; slow on most processors."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of images in the cross-entropy: none, or balanced, by which each class counts as much as another at a client,
    however few of the client's training images are of it."""
    batches: Literal["shuffled", "balanced"] = "shuffled"
    """Images of a mini-batch: shuffled, by which every pass takes each image once; or balanced, by which a mini-batch has
    each of the client's classes equally often, but for one image, and a pass is as long. Images of a rare class then come
    several times in a pass, and some of a frequent class do not."""
    clip_norm: float | None = Field(None, gt=0)
    """Largest L2 norm of the whole gradient; no clipping if not set."""
    augment: Annotated[tuple[AugmentationName, ...], Field(max_length=16)] = Field((), strict=False, fail_fast=True)
    """Augmentations: crop, a random crop with a margin of 1/8; resized_crop, a random window of 0.7 to 1 of the area,
    brought back to the size; flip, a random horizontal flip; color, other brightness, contrast, saturation and hue, each by
    at most 0.4; gray, a gray image with probability 0.1; package.module:factory, code of your own, which every trainer's
    owner allows. They are made in this order."""
    views: int = Field(0, ge=0, le=64)
    """Changed copies of each training image of which features are computed too, where training.train is "head" or "last:N":
    each mini-batch takes an image or one of its copies. They are changed by `augment`, and always the same, so that a site
    computes their features once."""
    threads: int = Field(1, ge=1, le=256)
    """Processor threads of local training; another number changes the last bits of results."""
    evaluation_batch_size: int = Field(256, ge=1, le=65_536)
    """Batch size without gradients; another size changes the last bits of features."""
    adversarial: Mapping[str, JsonValue] | None = None
    """Train on images that an attack has changed: a table of epsilon, step_size and steps. On the images as they are if not
    set. What leaves a client for prototypes stays that of unchanged images."""
    prototype_statistics: Literal["trained", "site"] = "trained"
    """Statistics of BatchNorm layers in the pass that makes a client's prototypes: those that training left, a moving mean
    that lags behind the weights (trained); or those of its training images under the trained weights (site). The model that
    is sent is the same."""
    mix_style: Mapping[str, JsonValue] | None = None
    """Mix channel statistics of early features between images (Zhou et al., ICLR 2021): a table of probability and
    alpha. Only for resnet10 and resnet18. Nothing is mixed if not set, nor in what leaves a client for prototypes."""

    @property
    def on_features(self) -> bool:
        """Whether training and evaluation see what frozen layers made of images, in place of the images."""
        return has_frozen_layers(self.train)

    @property
    def augmentation_code(self) -> tuple[str, ...]:
        """Augmentations that are code of other packages, as package.module:factory."""
        return tuple(name for name in self.augment if name not in AUGMENTATIONS)

    @property
    def attack(self) -> AdversarialSettings | None:
        """The attack on training images; None where they stay as they are."""
        return None if self.adversarial is None else AdversarialSettings.model_validate(self.adversarial)

    @property
    def mixing(self) -> MixStyleSettings | None:
        """The mixing of features; None where they stay as they are."""
        return None if self.mix_style is None else MixStyleSettings.model_validate(self.mix_style)

    @field_validator("mix_style")
    @classmethod
    def _a_mixing(cls, values: Mapping[str, JsonValue] | None) -> Mapping[str, JsonValue] | None:
        if values is None:
            return None
        check_keys(values, MixStyleSettings, "training.mix_style.")
        return validate(MixStyleSettings, values, "training.mix_style.").model_dump()

    @field_validator("adversarial")
    @classmethod
    def _an_attack(cls, values: Mapping[str, JsonValue] | None) -> Mapping[str, JsonValue] | None:
        if values is None:
            return None
        check_keys(values, AdversarialSettings, "training.adversarial.")
        return validate(AdversarialSettings, values, "training.adversarial.").model_dump()

    @model_validator(mode="before")
    @classmethod
    def _one_length(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            steps, epochs = values.get("local_steps"), values.get("local_epochs")
            if steps is not None and epochs is not None:
                raise InvalidKey("local_steps", "set exactly one of 'local_steps' and 'local_epochs'")
            if steps is None and epochs is None:
                return {**values, "local_steps": 10}
        return values

    @model_validator(mode="after")
    def _keys_of_the_schedule(self) -> Self:
        for key, schedule in (("schedule_rounds", "cosine"), ("step_rounds", "step"), ("step_factor", "step")):
            if getattr(self, key) is not None and self.schedule != schedule:
                raise InvalidKey(key, f'{key} is for schedule = "{schedule}", and the schedule is "{self.schedule}"')
        if self.schedule == "step" and self.step_rounds is None:
            raise InvalidKey("step_rounds", "set 'step_rounds' too: schedule = \"step\" says nothing without it")
        if self.schedule_rounds is not None and self.schedule_rounds <= self.warmup_rounds:
            raise InvalidKey(
                "schedule_rounds",
                f"schedule_rounds = {self.schedule_rounds} leaves no round after warmup_rounds = {self.warmup_rounds}",
            )
        return self
