"""Models by specification. Each is made from (specification, seed) alone and keeps the contract in contract.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from shared.errors import InvalidModel
from shared.run_config import FACTORY, ModelSection
from trainer.determinism import seeded
from trainer.factories import import_factory
from trainer.models.cnn import CNN4
from trainer.models.contract import FeatureModel, checked, head_names
from trainer.models.resnet import ResNet10
from trainer.models.state import Arrays, check_state, load_arrays, state_arrays
from trainer.randomness import derive_seed

__all__ = ["Arrays", "FeatureModel", "build_model", "head_names", "load_arrays", "state_arrays"]

BUILTIN: Mapping[str, Callable[[ModelSection, int, int], nn.Module]] = MappingProxyType(
    {
        "resnet10": lambda section, num_classes, image_size: ResNet10(num_classes, section.stem),
        "cnn4": lambda section, num_classes, image_size: CNN4(num_classes, image_size),
    }
)
"""Models by name, as functions of (section, num_classes, image_size)."""


def build_model(section: ModelSection, num_classes: int, image_size: int, seed: int) -> nn.Module:
    """Return a model on the processor that keeps `contract.FeatureModel`, the same for the same arguments.

    A factory is called with `num_classes`, `image_size` and the section's options, all by keyword; it may draw from the
    global random states of torch, numpy and random, which are seeded for it.

    Args:
        section: The run's `[model]`.
        num_classes: M.
        image_size: Height and width of the input in pixels.
        seed: The run's seed.

    Raises:
        InvalidModel: The specification gives no usable model.
    """
    with seeded(derive_seed("model", seed)):
        model = checked(_make(section, num_classes, image_size), section.name, num_classes, image_size)
    check_state(model)
    return model


def _make(section: ModelSection, num_classes: int, image_size: int) -> object:
    builtin = BUILTIN.get(section.name)
    if builtin is not None:
        if section.options:
            raise InvalidModel(
                f"model {section.name!r} takes no options; [model] options are for package.module:factory"
            )
        return builtin(section, num_classes, image_size)
    if not FACTORY.match(section.name):
        raise InvalidModel(
            f"unknown model {section.name!r}; known: {', '.join(BUILTIN)}; or write package.module:factory"
        )
    factory = import_factory(section.name, InvalidModel)
    try:
        return factory(num_classes=num_classes, image_size=image_size, **section.options)
    # A factory is somebody's code, which may raise anything.
    except Exception as cause:
        raise InvalidModel(f"model {section.name!r} cannot be made: {type(cause).__name__}: {cause}") from cause
