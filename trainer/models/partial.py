"""Parts of a backbone that are trained while the rest stays as every site has it.

The rest is in evaluation mode, has no gradient, and is no part of the state that travels.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

from fedplcc.shared.errors import InvalidModel

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
NORMS = (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
"""Normalisation layers; timm's own are subclasses of these."""


def trained_layers(backbone: nn.Module, train: str, name: str) -> frozenset[nn.Module]:
    """Return the layers of a backbone that are trained, each for its own tensors alone.

    Args:
        backbone: A model of timm without its classifier.
        train: "norm" or "last:N" of the run's `training.train`. Layers are grouped as timm groups them for learning rates by
            depth: the stem and each block, the last one with what follows it; N counts groups from the end.

    Raises:
        InvalidModel: It has no such layers, or fewer groups.
    """
    layers = {path: layer for path, layer in backbone.named_modules() if _owns_tensors(layer)}
    if train == "norm":
        norms = frozenset(layer for layer in layers.values() if isinstance(layer, NORMS))
        if not norms:
            raise InvalidModel(f'model {name!r} has no normalisation layer for training.train = "norm"')
        return norms
    number, places = int(train.partition(":")[2]), _places(backbone, name)
    depths = sorted({*places.values()})
    if number >= len(depths):
        raise InvalidModel(
            f"model {name!r} has {len(depths)} groups of layers, and training.train = {train!r} leaves none of them as it "
            'is; name fewer, or "all"'
        )
    first = depths[-number]
    return frozenset(
        layer
        for path, layer in layers.items()
        if all(places[_joined(path, own)] >= first for own, _ in layer.named_parameters(recurse=False))
        and any(True for _ in layer.parameters(recurse=False))
    )


def _places(backbone: Any, name: str) -> dict[str, int]:
    """Return the number of each parameter's group, from the stem on."""
    from timm.models import group_parameters

    matcher = getattr(backbone, "group_matcher", None)
    if matcher is None:
        raise InvalidModel(f"timm does not say how the layers of {name!r} are grouped; choose another training.train")
    found: dict[str, int] = group_parameters(backbone, matcher(), reverse=True)
    return found


def _owns_tensors(layer: nn.Module) -> bool:
    return any(True for own in (layer.parameters(recurse=False), layer.buffers(recurse=False)) for _ in own)


def _joined(path: str, own: str) -> str:
    return f"{path}.{own}" if path else own


def names_of(model: nn.Module, layers: Collection[nn.Module]) -> frozenset[str]:
    """Return the names of the state tensors that belong to some layers themselves."""
    paths = {path for path, layer in model.named_modules() if layer in layers}
    return frozenset(name for name in model.state_dict() if name.rpartition(".")[0] in paths)


def hold_still(model: nn.Module) -> None:
    """Put the layers that are not trained into evaluation mode, in a model that has such."""
    for layer in getattr(model, "still_layers", ()):
        layer.training = False
