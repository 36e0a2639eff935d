"""CReFF: the server re-trains the head on features that have the head gradients which clients report by class.

Shang, Lu, Huang, Wang, "Federated Learning on Heterogeneous and Long-Tailed Data via Classifier Re-Training with Federated
Features", IJCAI 2022, https://arxiv.org/abs/2204.13399.

Differs from the paper, or settles what it leaves open:

- A client's gradient of a class is over all its samples of that class, in evaluation mode and without augmentation. The
  authors' code takes the mean of 10 draws of 32 augmented samples, whose expectation this is but for the augmentation.
- The server's gradients are closed forms (docs/algorithms.md, rule 20.2), no automatic differentiation.
- Federated features begin as sums of twelve uniform numbers, which have mean 0 and variance 1, where the authors' code
  draws from the normal distribution: the same bytes on any machine.
- In round 1 gradients are those of the received head; from then on those of the head of the round before.
- The mean of a class's gradients is over the clients that have it. Features of a class that no client of a round has stay.
- Features and head are kept as float32, rounded once a round from float64.
- The head must be one linear layer. No setting makes it FedAvg: the head of its model is another one in any case.

Shape legend: N samples of a client, C classes of a client, n features of a class, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, near_normal
from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.heads.creff_matching import Head, head_gradient, matched, new_head, trained_head
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import BeforeTraining, ServerResult, ServerRound
from fedplcc.shared.methods.step import ClientStep, LossTerms

FEATURES, HEAD, GRADIENTS = "federated_features", "head", "head_gradients"
"""Groups: what the server keeps for itself, what it sends, and what clients upload."""
_FIRST_FEATURES, _NEW_HEAD, _ORDER = 0, 1, 2
MAX_PRODUCTS = 2**40
"""Most products of a server step, about eight minutes on one core; the defaults with 10 classes of 512 features have 5e9."""

Count = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=1e3)]


class Config(MethodConfig):
    """CReFF's hyper-parameters."""

    num_features: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Federated features of each class."""
    match_steps: Count = 100
    """Steps a round that bring the features' head gradients to the clients'."""
    match_lr: Rate = 0.1
    """Learning rate of these steps."""
    retrain_epochs: Count = 300
    """Passes over the features that train a new head each round."""
    retrain_lr: Rate = 0.01
    """Learning rate of these passes."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return FedAvg's terms."""
    return fedavg.client_loss(step, config)


def server_arrays(config: Config, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return the federated features and the re-trained head."""
    return {
        FEATURES: {"features": ("F32", (num_classes, config.num_features, feature_dim))},
        HEAD: {"weight": ("F32", (num_classes, feature_dim)), "bias": ("F32", (num_classes,))},
    }


def sends(config: Config) -> tuple[str, ...]:
    """Return the re-trained head."""
    return (HEAD,)


def uploads(config: Config, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return a head gradient for each class that the client has."""
    return {
        GRADIENTS: {
            "classes": ("I64", (None,)),
            "weight": ("F32", (None, num_classes, feature_dim)),
            "bias": ("F32", (None, num_classes)),
        }
    }


def before_training(before: BeforeTraining, config: Config) -> Mapping[str, ArrayGroup]:
    """Return the mean gradient of the cross-entropy of each class's samples with respect to the re-trained head."""
    head = _head(before.received.get(HEAD, before.head))
    classes_C = np.unique(before.labels_N).astype(np.int64)
    gradients = [
        head_gradient(before.features_ND[before.labels_N == class_id].astype(np.float64), class_id, head)
        for class_id in classes_C.tolist()
    ]
    return {
        GRADIENTS: {
            "classes": classes_C,
            "weight": to_float32(np.stack([gradient.weight_MD for gradient in gradients])),
            "bias": to_float32(np.stack([gradient.bias_M for gradient in gradients])),
        }
    }


def upload_fault(found: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Config) -> str | None:
    """Return what is wrong with the classes of a client's gradients: each is one that it has, in ascending order."""
    classes = found[GRADIENTS]["classes"].tolist()
    if not all(0 <= class_id < len(class_counts) and class_counts[class_id] for class_id in classes):
        return "a head gradient is of a class that the client has no samples of"
    if any(first >= second for first, second in pairwise(classes)):
        return "the classes of the head gradients do not ascend"
    if (np.abs(found[GRADIENTS]["bias"]) > 1 + 1e-5).any():
        return "a head gradient is of no probabilities: a number of its bias is beyond 1"
    return None


def alike(found: Mapping[str, ArrayGroup]) -> Mapping[str, ArrayGroup]:
    """Return the sizes of the features that gradients are made of: the gradients' own tell how much a client has learned."""
    weight_CMD, bias_CM = found[GRADIENTS]["weight"], found[GRADIENTS]["bias"].astype(np.float64)
    weights_C = np.sqrt(np.einsum("cmd,cmd->c", weight_CMD, weight_CMD, dtype=np.float64))
    errors_C = np.linalg.norm(bias_CM, axis=1)
    return {GRADIENTS: {"weight": np.divide(weights_C, errors_C, out=np.zeros_like(weights_C), where=errors_C > 1e-6)}}


def size_fault(config: Config, num_classes: int, feature_dim: int) -> str | None:
    """Return why a server step would take too long; None where it has at most `MAX_PRODUCTS` products."""
    in_one_pass = num_classes * config.num_features * num_classes * feature_dim
    products = in_one_pass * (4 * config.match_steps + 2 * config.retrain_epochs)
    if products <= MAX_PRODUCTS:
        return None
    return (
        f"a server step of creff has {products:.1e} products with {num_classes} classes and {feature_dim} features, at most "
        f"{MAX_PRODUCTS:.1e}: set a smaller method.num_features, method.match_steps or method.retrain_epochs"
    )


def server_step(step: ServerRound, config: Config) -> ServerResult:
    """Return features with the clients' mean gradients, and a new head trained on them, which the round's model gets."""
    features_MnD = _features(step, config)
    phi = _head(step.arrays.get(HEAD, step.start_head))
    by_class = matched(
        dict(enumerate(features_MnD)), _mean_gradients(step), phi, steps=config.match_steps, rate=config.match_lr
    )
    kept_MnD = to_float32(np.stack([by_class[class_id] for class_id in range(step.num_classes)]))
    new = trained_head(
        kept_MnD.reshape(-1, step.feature_dim).astype(np.float64),
        np.repeat(np.arange(step.num_classes), config.num_features),
        new_head(step.num_classes, step.feature_dim, step.seed, _NEW_HEAD, step.round),
        step.seed,
        _ORDER,
        step.round,
        epochs=config.retrain_epochs,
        rate=config.retrain_lr,
    )
    weight_MD, bias_M = to_float32(new.weight_MD), to_float32(new.bias_M)
    return ServerResult(
        arrays={FEATURES: {"features": kept_MnD}, HEAD: {"weight": weight_MD, "bias": bias_M}},
        head={name: weight_MD if tensor.ndim == 2 else bias_M for name, tensor in step.head.items()},
    )


def _features(step: ServerRound, config: Config) -> DoubleArray:
    if FEATURES in step.arrays:
        return step.arrays[FEATURES]["features"].astype(np.float64)
    shape = (step.num_classes, config.num_features, step.feature_dim)
    return near_normal(shape, step.seed, _FIRST_FEATURES)


def _mean_gradients(step: ServerRound) -> dict[int, Head]:
    """Return the plain mean of each class's gradients over the clients that have it; they are added in their order."""
    sums: dict[int, tuple[int, DoubleArray, DoubleArray]] = {}
    for upload in step.uploads:
        group = upload[GRADIENTS]
        for place, class_id in enumerate(group["classes"].tolist()):
            weight_MD = group["weight"][place].astype(np.float64)
            bias_M = group["bias"][place].astype(np.float64)
            count, weights_MD, biases_M = sums.get(class_id, (0, np.zeros_like(weight_MD), np.zeros_like(bias_M)))
            sums[class_id] = (count + 1, weights_MD + weight_MD, biases_M + bias_M)
    return {class_id: Head(weight / count, bias / count) for class_id, (count, weight, bias) in sorted(sums.items())}


def _head(group: ArrayGroup) -> Head:
    """Return a linear layer, whatever its tensors are called: the weight is a matrix, the bias is not."""
    (weight_MD,) = (tensor for tensor in group.values() if tensor.ndim == 2)
    (bias_M,) = (tensor for tensor in group.values() if tensor.ndim == 1)
    return Head(weight_MD.astype(np.float64), bias_M.astype(np.float64))


METHOD = Method(
    name="creff",
    paper="Shang et al., IJCAI 2022, https://arxiv.org/abs/2204.13399",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        ServerArrays(
            kept=server_arrays,
            step=server_step,
            sent=sends,
            uploaded=uploads,
            made=before_training,
            fault=upload_fault,
            alike=alike,
            too_large=size_fault,
            needs_linear_head=True,
        ),
    ),
)
