"""The layout of a run's model, known before the model is made: names and shapes alone, without memory, weights or draws."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from fedplcc.shared.config.round_bytes import ModelLayout
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.tables.model import TIMM, TimmOptions
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import BUILTIN
from fedplcc.trainer.models.contract import FeatureModel, personal_names
from fedplcc.trainer.models.timm_backbone import timm_halves, timm_model

_DTYPES = {torch.float32: "F32", torch.int64: "I64"}


def model_layout(config: RunConfig) -> ModelLayout | None:
    """Return the layout of what is trained of a run's model.

    None of a model of somebody's own factory, whose code is not run for this.

    Raises:
        InvalidModel: There is no such model, or it needs a package that is not installed.
    """
    with torch.device("meta"):
        model = _outlined(config)
    if model is None:
        return None
    still = getattr(model, "still_names", ())
    tensors: dict[str, Any] = {name: value for name, value in model.state_dict().items() if name not in still}
    if any(value.dtype not in _DTYPES for value in tensors.values()):
        raise InvalidModel(f"model {config.model.name!r} has tensors that cannot travel")
    schema = {name: (_DTYPES[value.dtype], tuple(value.shape)) for name, value in tensors.items()}
    withheld = personal_names(model, config.algorithm.withheld_part(config.method), config.model.name)
    return ModelLayout.of(schema, withheld, cast(FeatureModel, model).feature_dim, config.wire.precision)


def _outlined(config: RunConfig) -> nn.Module | None:
    section, num_classes, image_size = config.model, len(config.data.classes), config.data.image_size
    if section.name in BUILTIN:
        return BUILTIN[section.name](section, num_classes, image_size)
    match = TIMM.fullmatch(section.name)
    if match is None:
        return None
    options = TimmOptions.model_validate(section.options)
    if not config.training.on_features:
        return timm_model(match["name"], num_classes, image_size, options, train=config.training.train)
    return timm_halves(match["name"], image_size, None, config.training.train, section.name).model(num_classes, options)
