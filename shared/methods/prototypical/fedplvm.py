"""FedPLVM: prototypes clustered by clients and server, and a contrast of features with them by a sparse similarity.

Wang, Wang, Li, Ma, Liu, "Taming Cross-Domain Representation Variance in Federated Prototype Learning with Heterogeneous
Data Domains", NeurIPS 2024, https://arxiv.org/abs/2403.09048. The method follows the authors' published code; equation
numbers are those of FedPLCC, https://arxiv.org/abs/2409.18578, which extends it.

Differs from that code, or settles what it leaves open:

- The code's correction pulls a feature to the mean of its class's prototypes by the plain cosine: `corr = "mean_proto"`.
  FedPLCC describes a pull to all of them by the sparse similarity: `corr = "all_protos"`, a reconstruction.
- Cosines are floored at 1e-4 before the power alpha. The code has no floor, which is safe for rectified features only.
- A sample whose class has no prototype, or whose feature is zero, adds 0 to both terms and counts in the mean. The code
  takes log 0 for a class without a prototype.
- Models are weighted by samples (`averaging`). The code weights them equally where labels are spread evenly.
- The pass after training covers every sample. The code drops the last incomplete batch.
- Clients send sample counts with their prototypes, so that the aggregator can check them. No result depends on them.
- lambda1 is the code's `lamb`. With lambda1 = 0 the method is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.config import Coefficient, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    SIMILARITY_FLOOR,
    ClusterConfig,
    batch_mean,
    contrast,
    global_clusters,
    has_positives,
    local_clusters,
    same_class,
    sparse_cosine,
)
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Prototypes, Term
from fedplcc.shared.types import LOCAL_CLUSTER, FloatArray, IntArray, PrototypeSet


class Config(ClusterConfig):
    """FedPLVM's hyper-parameters; the defaults are those of the authors' code."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Power of the cosine in the contrast; dimensionless. 1 is the plain cosine."""
    tau: Temperature = 0.07
    """Temperature of the contrast; dimensionless."""
    lambda1: Coefficient = 100.0
    """Coefficient of both prototype terms. Zero leaves them out."""
    corr: Literal["mean_proto", "all_protos"] = "mean_proto"
    """Target of the correction: the mean of the class's prototypes, or each of them."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + lambda1 (L_contra + L_corr) as terms: `ce`, `contra` >= 0 and `corr` >= 0."""
    terms = {"ce": Term(step.task_loss)}
    prototypes = step.prototypes
    if prototypes is None or not config.lambda1:
        return terms
    ops = step.ops
    similarity_BG = sparse_cosine(ops, step.features_BD, prototypes.vectors_GD, config.alpha, SIMILARITY_FLOOR)
    is_positive_BG = same_class(step.labels_B, prototypes)
    applies_B = has_positives(step, is_positive_BG)
    contra_B = contrast(ops, similarity_BG / config.tau, is_positive_BG)
    terms["contra"] = Term(batch_mean(ops, contra_B, applies_B), config.lambda1)
    corr_B = _correction(step, prototypes, similarity_BG, is_positive_BG, config)
    terms["corr"] = Term(batch_mean(ops, corr_B, applies_B), config.lambda1)
    return terms


def _correction(
    step: ClientStep, prototypes: Prototypes, similarity_BG: Array, is_positive_BG: Array, config: Config
) -> Array:
    """Return 2 (cos(z, U^y) - 1)^2, or the mean over the class's prototypes of (1 - s_a(z, g))^2, `[B]`."""
    ops, labels_B = step.ops, step.labels_B
    if config.corr == "mean_proto":
        return 2 * (ops.paired_cosine(step.features_BD, prototypes.class_means_MD[labels_B]) - 1) ** 2
    gaps_B = ops.where(is_positive_BG, (1 - similarity_BG) ** 2, 0.0).sum(-1)
    return gaps_B / ops.clamp_min(is_positive_BG.sum(-1), 1)


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the centres of FINCH's clusters of each class's features, and their numbers of samples."""
    return local_clusters(features_ND, labels_N, num_classes, config)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return the centres of FINCH's clusters of each class's pooled local prototypes."""
    return global_clusters(sets, num_classes, partition=config.partition)


METHOD = Method(
    name="fedplvm",
    paper="Wang et al., NeurIPS 2024, https://arxiv.org/abs/2403.09048",
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
    ),
    neutral={"lambda1": 0.0},
)
