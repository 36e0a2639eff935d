"""A client loss as a function of features, logits and parameters: its value on numpy, its value and gradient on torch.

A point is where the function is looked at: arrays by name, `features` `[B, D]`, `logits` `[B, M]`, and every other name a
trainable parameter. What a mini-batch holds besides is a `Situation`, and constant. Everything is float64, so that central
differences of the numpy value have nine good digits.

Shape legend: B batch, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedplcc.method_contract.numpy_ops import NumpyOps, cross_entropy, on_device
from fedplcc.shared.methods.step import ClientStep, LossTerms, Prototypes
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.ops import TorchOps, to_device

Point = Mapping[str, npt.NDArray[np.float64]]
Loss = Callable[[ClientStep, Any], LossTerms]

FEATURES, LOGITS = "features", "logits"
WIDTH = 1e-6
"""Of a central difference: half the distance between the two points."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Constants of the loss of one mini-batch."""

    labels_B: npt.ArrayLike
    num_classes: int
    prototypes: PrototypeSet | None = None
    start: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    references: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Features under the reference models."""
    reference_logits: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    kept: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Arrays of the client's state."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    round: int = 2
    total_rounds: int = 10


def a_point(features_BD: npt.ArrayLike, num_classes: int, **params: npt.NDArray[np.float64]) -> dict[str, Any]:
    """The point with these features and parameters; its logits are the features' first components, over and over."""
    features = np.asarray(features_BD, dtype=np.float64)
    return {FEATURES: features, LOGITS: np.resize(features, (len(features), num_classes)), **params}


def on_numpy(point: Point, situation: Situation) -> ClientStep:
    """The mini-batch on numpy."""
    labels_B = np.asarray(situation.labels_B, dtype=np.int64)
    return ClientStep(
        ops=NumpyOps(),
        features_BD=point[FEATURES],
        logits_BM=point[LOGITS],
        labels_B=labels_B,
        task_loss=cross_entropy(point[LOGITS], labels_B),
        params=_params(point),
        start=situation.start,
        prototypes=on_device(situation.prototypes, situation.num_classes) if situation.prototypes else None,
        round=situation.round,
        total_rounds=situation.total_rounds,
        reference_features=situation.references,
        reference_logits=situation.reference_logits,
        kept=situation.kept,
        scalars=situation.scalars,
    )


def on_torch(
    point: Point, situation: Situation, dtype: torch.dtype = torch.float64
) -> tuple[ClientStep, dict[str, torch.Tensor]]:
    """The mini-batch on torch, and the leaves that a gradient is with respect to, by their names in the point."""
    leaves = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in point.items()}
    labels_B = torch.tensor(np.asarray(situation.labels_B, dtype=np.int64))
    step = ClientStep(
        ops=TorchOps(),
        features_BD=leaves[FEATURES],
        logits_BM=leaves[LOGITS],
        labels_B=labels_B,
        task_loss=torch.nn.functional.cross_entropy(leaves[LOGITS], labels_B),
        params=_params(leaves),
        start=_constants(situation.start, dtype),
        prototypes=_prototypes(situation, dtype),
        round=situation.round,
        total_rounds=situation.total_rounds,
        reference_features=_constants(situation.references, dtype),
        reference_logits=_constants(situation.reference_logits, dtype),
        kept={name: _constant(array, dtype) for name, array in situation.kept.items()},
        scalars=situation.scalars,
    )
    return step, leaves


def values(loss: Loss, config: Any, point: Point, situation: Situation) -> dict[str, float]:
    """Every term's value on numpy."""
    return {name: float(term.value) for name, term in loss(on_numpy(point, situation), config).items()}


def gradients(
    loss: Loss, config: Any, point: Point, situation: Situation, dtype: torch.dtype = torch.float64
) -> dict[str, tuple[float, dict[str, npt.NDArray[Any]]]]:
    """Every term's value on torch, and its gradient with respect to each part of the point; zeros where it has none."""
    step, leaves = on_torch(point, situation, dtype)
    found = {}
    for name, term in loss(step, config).items():
        slopes = torch.autograd.grad(
            term.value, list(leaves.values()), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        found[name] = (
            float(term.value.detach()),
            {leaf: slope.numpy() for leaf, slope in zip(leaves, slopes, strict=True)},
        )
    return found


def assert_torch_agrees_with_numpy(
    loss: Loss, config: Any, point: Point, situation: Situation, rows: Mapping[str, slice] = MappingProxyType({})
) -> None:
    """Check that every term has one value on both, and that torch's gradient is the central difference of numpy's value.

    Args:
        loss: The loss.
        config: Its hyper-parameters.
        point: Where it is looked at.
        situation: What is constant.
        rows: Rows of a part of the point whose gradients are compared; all of a part that is not named.
    """
    expected = values(loss, config, point, situation)
    found = gradients(loss, config, point, situation)
    assert list(found) == list(expected)
    for name, (value, _) in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)
    for leaf, array in point.items():
        chosen = rows.get(leaf, slice(None))
        compared = np.zeros(array.shape, bool)
        compared[chosen] = True
        differences: dict[str, npt.NDArray[Any]] = {name: np.zeros(array.shape) for name in expected}
        for index in map(tuple, np.argwhere(compared).tolist()):
            ahead, behind = (
                values(loss, config, {**point, leaf: _moved(array, index, by)}, situation) for by in (WIDTH, -WIDTH)
            )
            for name, slopes in differences.items():
                slopes[index] = (ahead[name] - behind[name]) / (2 * WIDTH)
        for name, slopes in differences.items():
            said = f"gradient of {name!r} with respect to {leaf!r}"
            np.testing.assert_allclose(found[name][1][leaf][chosen], slopes[chosen], rtol=1e-5, atol=1e-6, err_msg=said)


def _moved(array: npt.NDArray[Any], index: tuple[int, ...], by: float) -> npt.NDArray[Any]:
    copy = array.copy()
    copy[index] += by
    return copy


def _params(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name not in (FEATURES, LOGITS)}


def _constant(array: npt.NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """As a trainer puts what a client keeps on its device; whole numbers stay such."""
    return torch.tensor(array, dtype=dtype if array.dtype.kind == "f" else None)


def _constants(arrays: Mapping[str, npt.NDArray[Any]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array, dtype=dtype) for name, array in arrays.items()}


def _prototypes(situation: Situation, dtype: torch.dtype) -> Prototypes | None:
    """As a trainer puts them on its device, widened."""
    if situation.prototypes is None:
        return None
    found = to_device(situation.prototypes, situation.num_classes, torch.device("cpu"))
    if found is None:
        return None
    return replace(
        found,
        vectors_GD=found.vectors_GD.to(dtype),
        weights_G=found.weights_G.to(dtype),
        class_means_MD=found.class_means_MD.to(dtype),
    )
