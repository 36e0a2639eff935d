"""Models by specification. Each is a function of specification and seed, and keeps the contract in contract.py."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor, nn

from fedplcc.shared.config.run import FACTORY
from fedplcc.shared.config.tables.model import MODEL_FORMS, TIMM, ModelSection, TimmOptions
from fedplcc.shared.config.tables.training import has_frozen_layers
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.factories import import_factory
from fedplcc.trainer.models.cnn import CNN
from fedplcc.trainer.models.contract import (
    FeatureModel,
    checked,
    counting_layers,
    head_modules,
    head_names,
    personal_names,
    tensor_lists,
)
from fedplcc.trainer.models.frozen import FrozenBackbone
from fedplcc.trainer.models.projected import projected
from fedplcc.trainer.models.resnet import Norm, ResNet
from fedplcc.trainer.models.sequential import wrapped
from fedplcc.trainer.models.state import Arrays, check_state, load_arrays, state_arrays
from fedplcc.trainer.models.timm_backbone import Halves, TimmModel, timm_halves, timm_model
from fedplcc.trainer.owner.consent import NO_CONSENT, Consent
from fedplcc.trainer.reproducibility.determinism import seeded
from fedplcc.trainer.reproducibility.randomness import derive_seed

BUILTIN: Mapping[str, Callable[[ModelSection, int, int], nn.Module]] = MappingProxyType(
    {
        "resnet10": lambda section, num_classes, image_size: _resnet(section, num_classes, 1),
        "resnet18": lambda section, num_classes, image_size: _resnet(section, num_classes, 2),
        "cnn4": lambda section, num_classes, image_size: CNN(num_classes, image_size, maps=(32, 64)),
        "cnn5": lambda section, num_classes, image_size: CNN(num_classes, image_size, maps=(64, 64), hidden=(256,)),
    }
)
"""Models by name, as functions of (section, num_classes, image_size)."""


def build_model(
    section: ModelSection,
    num_classes: int,
    image_size: int,
    seed: int,
    *,
    with_weights: bool = True,
    consent: Consent = NO_CONSENT,
    train: str = "all",
    feature_dim: int | None = None,
) -> nn.Module:
    """Return a model on the processor that keeps `contract.FeatureModel`; the same arguments give the same model.

    A factory is called with `num_classes`, `image_size` and the section's options, all by keyword; it may draw from the
    global random states of torch, numpy and random, which are seeded for it.

    Args:
        section: The run's `[model]`.
        num_classes: M.
        image_size: Height and width of the input in pixels.
        with_weights: Whether the model gets the values that a run begins with, including the backbone that the section
            names. Otherwise its values are arbitrary, which suffices where all values are loaded from a run's model.
        consent: The code and the backbones that the section may name.
        train: The run's `training.train`: what of a timm model is trained, and is its state.
        feature_dim: D, if it must be this; a model with another one gets a linear projection, see projected.py.

    Raises:
        CodeNotAllowed: The section names other code; nothing of it was imported.
        WeightsMissing: It names a backbone that this site has not.
        InvalidModel: The specification gives no usable model.
    """
    if section.name in BUILTIN and not with_weights:
        model = copy.deepcopy(_blank(section.name, section.stem, section.norm, num_classes, image_size))
        memory = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in model.state_dict().items()}
        model.load_state_dict(memory, assign=True)  # `to_empty` does the same, but imports sympy: 0.3 s and 39 MB
    else:
        if has_frozen_layers(train):
            _halves(section.model_dump_json(), image_size, consent, train)  # what timm draws is none of the run's draws
        with seeded(derive_seed("model", seed)):
            made = _make(section, num_classes, image_size, train, with_weights=with_weights, consent=consent)
            # A timm model keeps the contract, and to try it would cost a pass through the backbone in each task.
            model = made if isinstance(made, TimmModel) else checked(made, section.name, num_classes, image_size)
    if feature_dim is not None:
        with seeded(derive_seed("projection", seed)):
            model = projected(model, section.name, num_classes, feature_dim)
    check_state(model)
    return model


@lru_cache(maxsize=8)
def _blank(name: str, stem: str | None, norm: Norm, num_classes: int, image_size: int) -> nn.Module:
    """Return a built-in model without memory for its state.

    A copy of it takes a tenth of the time that drawing five million values takes, which every task would overwrite.
    """
    with torch.device("meta"):
        return BUILTIN[name](ModelSection(name=name, stem=stem, norm=norm), num_classes, image_size)


def early_parts(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the stem and the ends of the first two stages of one of this package's ResNets; nothing of another model."""
    return model.early_parts if isinstance(model, ResNet) else ()


@lru_cache(maxsize=2)
def _halves(section_json: str, image_size: int, consent: Consent, train: str) -> Halves:
    """Return a backbone with frozen layers; these are shared by the models of a process."""
    section = ModelSection.model_validate_json(section_json)
    match = TIMM.fullmatch(section.name)
    assert match is not None, "a configuration freezes timm's backbones alone"
    key = f"{section.name} {section.weights_sha256}"
    return timm_halves(match["name"], image_size, consent.backbone(section), train, key)


def _make(
    section: ModelSection, num_classes: int, image_size: int, train: str, *, with_weights: bool, consent: Consent
) -> object:
    match = TIMM.fullmatch(section.name)
    if match is not None and has_frozen_layers(train):
        halves = _halves(section.model_dump_json(), image_size, consent, train)
        return halves.model(num_classes, TimmOptions.model_validate(section.options))
    weights = consent.backbone(section) if with_weights or train != "all" else None
    builtin = BUILTIN.get(section.name)
    if builtin is not None:
        model = builtin(section, num_classes, image_size)
        if weights is not None:
            _load_backbone(model, weights, section.name)
        return model
    if match is not None:
        options = TimmOptions.model_validate(section.options)
        return timm_model(match["name"], num_classes, image_size, options, weights, train=train)
    if not FACTORY.fullmatch(section.name):
        raise InvalidModel(f"unknown model {section.name!r}; known: {', '.join(BUILTIN)}; or {MODEL_FORMS}")
    consent.check_code(section.name)
    factory = import_factory(section.name, InvalidModel)
    try:
        return wrapped(factory(num_classes=num_classes, image_size=image_size, **section.options))
    # A factory may raise anything, and exit.
    except (Exception, SystemExit) as cause:
        raise InvalidModel(f"model {section.name!r} cannot be made: {type(cause).__name__}: {cause}") from cause


def _load_backbone(model: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Fill a built-in model but for its head, which stays as it was drawn."""
    state = model.state_dict()
    head = {name: state[name] for name in head_names(model)}
    try:
        model.load_state_dict({**weights, **head})
    except RuntimeError as error:
        raise InvalidModel(f"the weights are of another model than {name!r}, or of another stem or norm") from error


def _resnet(section: ModelSection, num_classes: int, blocks_per_stage: int) -> ResNet:
    assert section.stem is not None, "a configuration gives every model that has stems one of them"
    return ResNet(num_classes, section.stem, blocks_per_stage=blocks_per_stage, norm=section.norm)
