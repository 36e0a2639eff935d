"""FedPCL: contrasts with the class means of every single client, and with their averages.

Tan, Long, Ma, Liu, Zhou, Jiang, "Federated Learning from Pre-Trained Models: A Contrastive Learning Approach", NeurIPS 2022,
https://arxiv.org/abs/2209.10083; here in the form of FedCCL's comparison, "FedPCL with model parameter averaging".

Differs from the paper, or settles what it leaves open:

- Models are trained from scratch and averaged. The paper trains a small head upon frozen backbones, and only prototypes
  travel.
- The loss has the cross-entropy, and the classifier names classes. The authors' code has no cross-entropy, learns nothing
  in its first round, and names the class of the nearest local prototype.
- A contrast goes from a feature to prototypes, one of every class. The authors' code goes from a prototype to the features
  of two augmented views of the mini-batch.
- z is the model's own feature. The paper has a projection of 256 outputs upon the features.
- Similarities are cosines over tau = 0.07; means over clients are plain, whatever samples they have.
- A client that lacks a class has the average over the other clients in its place, so that every client's set has one
  prototype of each class that anybody has.
- The terms are means over the mini-batch. A sample whose class has no prototype adds 0 and counts in the mean; so does a
  zero feature, which has no direction.
- All clients of the round are in the mean over clients, the training one too. What a client downloads grows with their
  number.
- Both terms have a coefficient. With both at zero the method is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.config import Coefficient, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    MIN_FEATURE_NORM,
    PrototypeConfig,
    batch_mean,
    contrast,
    local_means,
    mean_per_class,
    same_class,
)
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Term
from fedplcc.shared.types import CLASS_MEAN, FloatArray, IntArray, PrototypeSet


class Config(PrototypeConfig):
    """FedPCL's hyper-parameters."""

    tau: Temperature = 0.07
    """Temperature of both contrasts; dimensionless."""
    lambda1: Coefficient = 1.0
    """Coefficient of the contrast with the averages over clients. Zero leaves it out."""
    lambda2: Coefficient = 1.0
    """Coefficient of the mean of the contrasts with each client's prototypes. Zero leaves it out."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + lambda1 L_g + lambda2 mean_q L_q as terms: `ce`, `global` >= 0 and `local` >= 0.

    Each L is -log of the softmax of the cosines over tau, among one group's prototypes, at the sample's class.
    """
    terms = {"ce": Term(step.task_loss)}
    prototypes = step.prototypes
    if prototypes is None or config.lambda1 == config.lambda2 == 0:
        return terms
    ops = step.ops
    # Rows are group-major, groups are of one size, and the last one has the averages (see `server_prototypes`).
    by_group = (len(step.labels_B), prototypes.num_groups, -1)
    logits_BQM = (ops.cosine(step.features_BD, prototypes.vectors_GD) / config.tau).reshape(by_group)
    is_positive_BQM = same_class(step.labels_B, prototypes).reshape(by_group)
    contrast_BQ = contrast(ops, logits_BQM, is_positive_BQM)
    has_direction_B = ops.row_norm(step.features_BD) > MIN_FEATURE_NORM
    applies_BQ = is_positive_BQM.any(-1) & has_direction_B[:, None]

    def mean_contrast(groups: slice) -> Array:
        return batch_mean(ops, contrast_BQ[:, groups], applies_BQ[:, groups])

    if config.lambda1:
        terms["global"] = Term(mean_contrast(slice(-1, None)), config.lambda1)
    if config.lambda2:
        terms["local"] = Term(mean_contrast(slice(None, -1)), config.lambda2)
    return terms


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the mean feature of every class that the client has, and its number of samples."""
    return local_means(features_ND, labels_N, num_classes)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return each client's means, complete, as groups 0, 1, ... in client-id order, and the averages as group -1.

    A group has one row for each class that any client has, by class. Clients without prototypes have no group.
    """
    own = [mean_per_class([uploaded], num_classes, by_counts=False) for uploaded in sets if len(uploaded)]
    averages = mean_per_class(own, num_classes, by_counts=False)
    if not own:
        return averages
    groups = []
    for means in own:
        rows_MD = averages.vectors.copy()
        rows_MD[np.searchsorted(averages.class_ids, means.class_ids)] = means.vectors
        groups.append(rows_MD)
    num_groups = len(own) + 1
    return PrototypeSet(
        np.concatenate([*groups, averages.vectors]),
        np.tile(averages.class_ids, num_groups),
        np.tile(averages.weights, num_groups),
        np.repeat([*range(len(own)), -1], len(averages)).astype(np.int64),
    )


METHOD = Method(
    name="fedpcl",
    paper="Tan et al., NeurIPS 2022, https://arxiv.org/abs/2209.10083",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PrototypeExchange(
            kind=CLASS_MEAN,
            report=client_report,
            merge=server_prototypes,
            weights_are_counts=True,
        ),
    ),
    neutral={"lambda1": 0.0, "lambda2": 0.0},
)
