"""Contract of every model: a feature extractor and a classifier, each reachable by name.

Shape legend: B batch, D feature size, M classes, S image size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods.parts.personal import Personal
from fedplcc.shared.types import BATCH_NORM, HEAD, PARAMETERS

DEFAULT_HEAD = ("classifier.",)
"""Prefixes of the head's tensors where a model does not name them in `head_prefixes`."""


class FeatureModel(Protocol):
    """A `torch.nn.Module` with these members; its `forward` is `classifier(features(x))`.

    A model may also have `head_prefixes`, a tuple: names of state tensors that begin with one of them are the head, all
    others the base.
    """

    feature_dim: int
    """D."""

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Feature vectors `[B, D]` of normalised images `[B, 3, S, S]`."""

    def classifier(self, z_BD: Tensor) -> Tensor:
        """Logits `[B, M]` of feature vectors."""


def checked(model: object, name: str, num_classes: int, image_size: int) -> nn.Module:
    """Return the model if it keeps the contract, tried on two blank images.

    Raises:
        InvalidModel: It does not; the message says what to change.
    """
    if not isinstance(model, nn.Module):
        raise InvalidModel(f"model {name!r}: the factory must return a torch.nn.Module, not {type(model).__name__}")
    if type(model) is nn.Sequential:
        last = type(model[-1]).__name__ if len(model) else "nothing"
        raise InvalidModel(
            f"model {name!r}: a Sequential is a model where its last layer is Linear, the classifier; it ends in {last}"
        )
    for member in ("features", "classifier"):
        if not callable(getattr(model, member, None)):
            raise InvalidModel(
                f"model {name!r}: give it {member}(...), so that forward(x) is classifier(features(x)); "
                f"{type(model).__name__} has none"
            )
    dim = getattr(model, "feature_dim", None)
    if not isinstance(dim, int) or dim < 1:
        raise InvalidModel(f"model {name!r}: set feature_dim to the number of features, a whole number, not {dim!r}")
    contract = cast(FeatureModel, model)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            z_BD = contract.features(torch.zeros(2, 3, image_size, image_size))
            logits_BM = contract.classifier(z_BD)
    # The model of a factory may raise anything, and exit.
    except (Exception, SystemExit) as cause:
        raise InvalidModel(
            f"model {name!r} must take images [B, 3, {image_size}, {image_size}]; it raised {type(cause).__name__}: {cause}"
        ) from cause
    finally:
        model.train(was_training)
    _check_shape(f"model {name!r}: features(x)", z_BD, (2, dim))
    _check_shape(f"model {name!r}: classifier(z)", logits_BM, (2, num_classes))
    return model


def _check_shape(what: str, value: Any, expected: tuple[int, int]) -> None:
    shape = tuple(getattr(value, "shape", ()))
    if shape != expected:
        raise InvalidModel(f"{what} must have the shape {list(expected)} for two images, not {list(shape)}")


def tensor_lists(model: nn.Module, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return which tensors are trained, belong to the head and belong to BatchNorm layers, as round 0's update says it.

    A model whose classifier is no part of it with a name of its own has no list of its head.
    """
    trained = {name for name, value in model.named_parameters(remove_duplicate=False) if value.requires_grad}
    members = {PARAMETERS: trained, BATCH_NORM: set(_batch_norm_names(model))}
    with suppress(InvalidModel):
        members[HEAD] = set(head_names(model))
    return {role: tuple(place for place, name in enumerate(names) if name in found) for role, found in members.items()}


def head_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the state tensors that belong to the head, in state order; all others belong to the base.

    Raises:
        InvalidModel: No tensor's name begins with one of the model's head prefixes.
    """
    prefixes = tuple(getattr(model, "head_prefixes", DEFAULT_HEAD))
    names = tuple(name for name in model.state_dict() if name.startswith(prefixes))
    if not names:
        raise InvalidModel(f"no tensor's name begins with one of {list(prefixes)}; set head_prefixes on the model")
    return names


def head_modules(model: nn.Module) -> frozenset[nn.Module]:
    """Return the layers whose tensors belong to the head; all others belong to the base."""
    prefixes = tuple(getattr(model, "head_prefixes", DEFAULT_HEAD))
    return frozenset(part for name, part in model.named_modules() if name and f"{name}.".startswith(prefixes))


def personal_names(model: nn.Module, personal: Personal, name: str) -> tuple[str, ...]:
    """Return the names of the state tensors that a client keeps for itself, in state order.

    Raises:
        InvalidModel: It has no such tensor, or no other.
    """
    if personal == "none":
        return ()
    names = head_names(model) if personal == "head" else _batch_norm_names(model)
    if not names:
        raise InvalidModel(f"model {name!r} has no BatchNorm layer for a client to keep")
    if len(names) == len(model.state_dict()):
        raise InvalidModel(f"model {name!r} has nothing beside its {personal}, which each client keeps for itself")
    return names


def counting_layers(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the BatchNorm layers that count running statistics, in the order of the model's parts."""
    return [
        part
        for part in model.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm)
        and None not in (part.running_mean, part.running_var, part.num_batches_tracked)
    ]


def _batch_norm_names(model: nn.Module) -> tuple[str, ...]:
    norms = [prefix for prefix, part in model.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    return tuple(name for name in model.state_dict() if name.rpartition(".")[0] in norms)
