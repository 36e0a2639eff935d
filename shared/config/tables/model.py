"""`[model]`: the model of a run, or a client's own kind of model, and the options of models from timm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
)

from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.config.sections import FACTORY, Section, check_keys, form, unknown, validate

STEMS: Mapping[str, tuple[str, ...]] = {
    "resnet10": ("imagenet5x5", "cifar3x3", "imagenet7x7"),
    "resnet18": ("imagenet7x7", "cifar3x3"),
    "cnn4": (),
    "cnn5": (),
}
"""Built-in models with their possible stems, the default first."""
RESNETS = ("resnet10", "resnet18")
"""Built-in models that have normalisation layers, and stages."""
TIMM = re.compile(r"^timm:(?P<name>[A-Za-z0-9][\w.-]*)$")
"""`timm:NAME`, with a name of timm's."""
WEIGHTS_NAME = re.compile(NAME_PATTERN)
"""An owner's name of a backbone."""
UNSET_IN_0_2 = (("pretrained", False), ("checkpoint", None), ("freeze_backbone", False))
"""Options that 0.2 wrote where they were not set; such runs are read on."""
SHA256 = form(r"^[0-9a-f]{64}$", "write a SHA-256: 64 digits of 0 to 9 and a to f")
MODEL_FORMS = "write timm:NAME or package.module:factory"


class TimmOptions(Section):
    """`[model.options]` of timm:NAME."""

    hidden_dim: int = Field(128, ge=0, le=65_536)
    """Width of the hidden layer between backbone and classifier; its rectified outputs are the features. 0 for none: the
    features are the backbone's."""
    feature_norm: Literal["none", "l2", "sqrt_l2"] = "none"
    """Normalisation of the backbone's features: none; to unit length (l2); or of their square roots with signs (sqrt_l2;
    Perronnin et al., ECCV 2010, improve linear classifiers so)."""


class ModelSection(Section):
    """`[model]`"""

    name: str = "resnet10"
    """resnet10, resnet18, cnn4, cnn5, timm:NAME or package.module:factory."""
    stem: str | None = Field(None, validate_default=True)
    """Stem of a ResNet: imagenet5x5 (5x5 convolution of stride 2 with max-pooling, as in FedPLVM and FedPLCC), imagenet7x7
    (7x7, as in the ResNet paper) or cifar3x3 (3x3 of stride 1 without pooling, as in FPL). The first stem if not set."""
    norm: Literal["batch", "group"] = "batch"
    """Normalisation layers of a ResNet: batch normalisation, or group normalisation with 32 groups of channels (Wu and He,
    ECCV 2018), which has no running statistics to average."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict, validate_default=True)
    """For timm:NAME see `TimmOptions`; for package.module:factory its keyword arguments."""
    weights: str | None = Field(None, pattern=NAME_PATTERN)
    """Backbone that the run begins with, by the name that owners keep it under (`fedplcc weights add`); the seed draws all
    values if not set. Every client needs it; nothing is downloaded."""
    weights_sha256: str | None = Field(None, pattern=SHA256, validate_default=True)
    """Its SHA-256, which says what it is; the commands that read this file fill it in from the store of this host."""

    @property
    def kind(self) -> str:
        """The kind of model in words: its name, with a suffix for another normalisation, and its stem if any."""
        name = self.name if self.norm == "batch" else f"{self.name}-{self.norm}norm"
        return name if self.stem is None else f"{name} {self.stem}"

    @property
    def is_factory(self) -> bool:
        """Whether the name is package.module:factory, code that building the model imports and runs."""
        return self.name not in STEMS and not TIMM.fullmatch(self.name)

    @field_validator("name")
    @classmethod
    def _known_model(cls, name: str) -> str:
        if name in STEMS or TIMM.fullmatch(name):
            return name
        if name.startswith("timm:"):
            raise ValueError("write timm:NAME with a name of timm's own; names of other hubs are not taken")
        if not FACTORY.fullmatch(name):
            raise ValueError(f"{unknown('model', name, STEMS)}; or {MODEL_FORMS}")
        return name

    @field_validator("stem")
    @classmethod
    def _stem_of_the_model(cls, stem: str | None, info: ValidationInfo) -> str | None:
        if "name" not in info.data:
            return stem  # the name is wrong, and reported
        name = info.data["name"]
        stems = STEMS.get(name, ())
        if stem is None:
            return stems[0] if stems else None
        if not stems:
            raise ValueError(f"model {name!r} has no stem to choose; leave the key out")
        if stem not in stems:
            raise ValueError(f"model {name!r} has the stems {', '.join(stems)}")
        return stem

    @field_validator("norm")
    @classmethod
    def _norm_of_the_model(cls, norm: str, info: ValidationInfo) -> str:
        name = info.data.get("name")
        if name is not None and norm != "batch" and name not in RESNETS:
            raise ValueError(f"model {name!r} has no normalisation to choose; {' and '.join(RESNETS)} have")
        return norm

    @field_validator("options")
    @classmethod
    def _options_of_the_model(cls, options: Mapping[str, JsonValue], info: ValidationInfo) -> Mapping[str, JsonValue]:
        name = info.data.get("name", "")
        if name in STEMS and options:
            raise ValueError(f"model {name!r} takes no options; they are for timm:NAME and package.module:factory")
        if not TIMM.fullmatch(name):
            return options
        options = {key: value for key, value in options.items() if (key, value) not in UNSET_IN_0_2}
        if gone := [key for key, _ in UNSET_IN_0_2 if key in options]:
            instead = (
                'training.train = "head" is in its place'
                if gone[0] == "freeze_backbone"
                else "owners keep weights with `fedplcc weights add`, and model.weights names them"
            )
            raise ValueError(f"{gone[0]!r} is gone: {instead}")
        check_keys(options, TimmOptions, "model.options.")
        return validate(TimmOptions, options, "model.options.").model_dump()

    @field_validator("weights")
    @classmethod
    def _weights_of_the_model(cls, weights: str | None, info: ValidationInfo) -> str | None:
        name = info.data.get("name", "timm:")
        if weights is not None and name not in RESNETS and not name.startswith("timm:"):
            raise ValueError(f"model {name!r} begins with no weights; timm:NAME, {' and '.join(RESNETS)} may")
        return weights

    @field_validator("weights_sha256")
    @classmethod
    def _weights_by_content(cls, sha256: str | None, info: ValidationInfo) -> str | None:
        weights = info.data.get("weights")
        if weights is None and sha256 is not None and "weights" in info.data:
            raise ValueError("it is the SHA-256 of the backbone that 'weights' names, which is not set")
        if weights is not None and sha256 is None:
            raise ValueError(
                f"the store of this host has no backbone {weights!r} whose SHA-256 could stand here; keep one with "
                f"`fedplcc weights add FILE|PACKAGE --name {weights}`, or copy the SHA-256 from `fedplcc weights list` of "
                "a host that has it"
            )
        return sha256


def batch_norm_refusal(model: ModelSection) -> str | None:
    """Return why a model has no BatchNorm layers; None where it has some, or where only the model itself can say."""
    if model.name in STEMS and model.name not in RESNETS:
        return f"model {model.name!r} has no BatchNorm layer"
    return None if model.norm == "batch" else f'model.norm = "{model.norm}" leaves no BatchNorm layer in the model'


def mixing_refusal(model: ModelSection) -> str | None:
    """Return why early features of a model cannot be mixed; None where they can."""
    if model.name in RESNETS:
        return None
    return f"training.mix_style mixes features of {' and '.join(RESNETS)}, and the model is {model.name!r}"
