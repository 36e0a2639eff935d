"""FedCCL: a contrast of features with every client's local clusters, and with one averaged signal per class.

"Federated Dual-Clustered Feature Contrast Under Domain Heterogeneity", 2024, https://arxiv.org/abs/2404.09259, Algorithm 1;
equation numbers below are the paper's.

Differs from the paper, or settles what it leaves open:

- Both contrasts use the temperature tau = 0.07, which the set-up names for all experiments (eq. 16 and 17 omit it). Both
  are means over the mini-batch; the equations sum over a client's data.
- A signal of the global clusters is their mean. Eq. 15 omits the division, which does not change a cosine.
- The server sends the pooled local signals and the averaged ones in one set, as the paper's section 4.1 says (Algorithm 1
  sends only the latter). The group id of a pooled signal is its client's index in the round, that of an averaged one -1.
- The pool of a class grows with the number of clients. `max_pool_per_class` keeps the signals that represent the most
  samples. A client's own signals stay in the pool that it receives, as published.
- The paper does not name FINCH's level; the default is the last partition for clients and server.
- A sample whose class has no signal, or whose feature is zero, adds 0 and counts in the mean.
- The paper evaluates local models: a client keeps its trained model and reports that model's accuracy besides the global
  model's.
- Both terms have a coefficient, 1 as in eq. 18. With both at zero the method is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.config import Coefficient, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report, class_means
from fedplcc.shared.methods.prototypes import (
    ClusterConfig,
    batch_mean,
    contrast,
    global_clusters,
    has_positives,
    local_clusters,
    pooled,
    same_class,
)
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Term
from fedplcc.shared.types import LOCAL_CLUSTER, FloatArray, IntArray, PrototypeSet


class Config(ClusterConfig):
    """FedCCL's hyper-parameters."""

    tau: Temperature = 0.07
    """Temperature of both contrasts (eq. 16 and 17); dimensionless."""
    lambda1: Coefficient = 1.0
    """Coefficient of the contrast with local signals (eq. 18). Zero leaves it out."""
    lambda2: Coefficient = 1.0
    """Coefficient of the contrast with averaged signals (eq. 18). Zero leaves it out."""
    max_pool_per_class: Annotated[int, Field(ge=1, le=2**24)] | None = None
    """Most local signals of a class that the server sends; all if not set."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + L_local + L_global as terms (eq. 18): `ce`, `local` >= 0 (eq. 16) and `global` >= 0 (eq. 17)."""
    terms = {"ce": Term(step.task_loss)}
    prototypes = step.prototypes
    if prototypes is None or config.lambda1 == config.lambda2 == 0:
        return terms
    ops = step.ops
    logits_BG = ops.cosine(step.features_BD, prototypes.vectors_GD) / config.tau
    is_positive_BG = same_class(step.labels_B, prototypes)
    is_pooled_1G = (prototypes.group_ids_G >= 0)[None, :]

    def mean_contrast(among_1G: Array) -> Array:
        positives_BG = is_positive_BG & among_1G
        return batch_mean(ops, contrast(ops, logits_BG, positives_BG, among_1G), has_positives(step, positives_BG))

    if config.lambda1:
        terms["local"] = Term(mean_contrast(is_pooled_1G), config.lambda1)
    if config.lambda2:
        terms["global"] = Term(mean_contrast(~is_pooled_1G), config.lambda2)
    return terms


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the centres of FINCH's clusters of each class's features, and their numbers of samples (eq. 8 to 10)."""
    return local_clusters(features_ND, labels_N, num_classes, config)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return the pool of all local signals (eq. 11), then one averaged signal per class (eq. 13 to 15)."""
    pool = pooled(sets)
    if not len(pool):
        return pool
    means_MD = class_means(global_clusters(sets, num_classes, partition=config.partition), num_classes)
    present = np.unique(pool.class_ids)
    pool = _largest(pool, config.max_pool_per_class)
    return PrototypeSet(
        np.concatenate([pool.vectors, means_MD[present]]),
        np.concatenate([pool.class_ids, present]),
        np.concatenate([pool.weights, np.ones(len(present), np.float32)]),
        np.concatenate([pool.group_ids, np.full(len(present), -1)]),
    )


def _largest(pool: PrototypeSet, most: int | None) -> PrototypeSet:
    """Return at most `most` rows of each class, those of the largest weights, in their order; the first of equal ones."""
    if most is None:
        return pool
    kept = []
    for class_id in np.unique(pool.class_ids):
        rows = np.flatnonzero(pool.class_ids == class_id)
        kept.append(rows[np.argsort(-pool.weights[rows], kind="stable")[:most]])
    rows = np.sort(np.concatenate(kept))
    return PrototypeSet(pool.vectors[rows], pool.class_ids[rows], pool.weights[rows], pool.group_ids[rows])


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return the trained model, which the client evaluates besides the global one."""
    return end.trained


def local_model(received: ModelArrays, state: ClientState | None, config: Config) -> ModelArrays | None:
    """Return the client's own model of its last committed update; None before it has one."""
    return state


METHOD = Method(
    name="fedccl",
    paper="Federated Dual-Clustered Feature Contrast Under Domain Heterogeneity, 2024, https://arxiv.org/abs/2404.09259",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PrototypeExchange(
            kind=LOCAL_CLUSTER,
            report=client_report,
            merge=server_prototypes,
            weights_are_counts=True,
        ),
        KeptState(after=next_client_state),
        OwnModel(local=local_model),
    ),
    neutral={"lambda1": 0.0, "lambda2": 0.0},
)
