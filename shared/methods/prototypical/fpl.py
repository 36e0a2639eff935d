"""FPL: a contrast with cluster prototypes of all domains, and a pull to one unbiased prototype per class.

Huang, Ye, Shi, Li, Du, "Rethinking Federated Learning with Domain Shift: A Prototype View", CVPR 2023; equation numbers
below are the paper's, https://openaccess.thecvf.com/content/CVPR2023/html/Huang_Rethinking_Federated_Learning_With_Domain_Shift_A_Prototype_View_CVPR_2023_paper.html

Differs from the paper, or settles what it leaves open:

- Eq. 7 is typeset with tau inside the norm. The authors' code computes cos / tau, and so does this method.
- L_UPCR (eq. 10) sums over the D dimensions in the paper; the authors' code averages over them, which is 512 times less.
  The code produced the published numbers, so the default is `upcr_reduction = "mean"`.
- Loss terms are means over the mini-batch. A sample whose class has no prototype adds 0 to both terms and counts in the
  mean. A zero feature has no direction and adds 0 to the contrast.
- Local prototypes come from a pass after training, as the paper's Algorithm 1 says. The authors' code uses the features
  of the last epoch.
- The unbiased prototypes (eq. 6) are the class means of the prototypes that the server sends; clients compute them.
- Every term has a coefficient, 1 as in eq. 12. With both at zero the method is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.config import Coefficient, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    Partition,
    PrototypeConfig,
    batch_mean,
    contrast,
    global_clusters,
    has_class,
    has_positives,
    local_means,
    same_class,
    square_distance,
)
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term
from fedplcc.shared.types import CLASS_MEAN, FloatArray, IntArray, PrototypeSet


class Config(PrototypeConfig):
    """FPL's hyper-parameters."""

    tau: Temperature = 0.02
    """Temperature of the contrast (eq. 7); dimensionless."""
    lambda1: Coefficient = 1.0
    """Coefficient of the contrast with cluster prototypes (eq. 12). Zero leaves it out."""
    lambda2: Coefficient = 1.0
    """Coefficient of the distance to unbiased prototypes (eq. 12). Zero leaves it out."""
    upcr_reduction: Literal["mean", "sum"] = "mean"
    """Whether the squared distance to the unbiased prototype is averaged over dimensions, or summed as typeset."""
    partition: Partition = "last"
    """The server's partition of FINCH: last, first or index:<l>."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + L_CPCL + L_UPCR as terms (eq. 12): `ce`, `cpcl` >= 0 (eq. 8) and `upcr` >= 0 (eq. 10)."""
    terms = {"ce": Term(step.task_loss)}
    prototypes = step.prototypes
    if prototypes is None:
        return terms
    ops = step.ops
    if config.lambda1:
        is_positive_BG = same_class(step.labels_B, prototypes)
        similarity_BG = ops.cosine(step.features_BD, prototypes.vectors_GD)
        cpcl_B = contrast(ops, similarity_BG / config.tau, is_positive_BG)
        terms["cpcl"] = Term(batch_mean(ops, cpcl_B, has_positives(step, is_positive_BG)), config.lambda1)
    if config.lambda2:
        square_BD = square_distance(step, prototypes)
        upcr_B = square_BD.mean(-1) if config.upcr_reduction == "mean" else square_BD.sum(-1)
        terms["upcr"] = Term(batch_mean(ops, upcr_B, has_class(step, prototypes)), config.lambda2)
    return terms


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the mean feature of every class that the client has, and its number of samples (eq. 2)."""
    return local_means(features_ND, labels_N, num_classes)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return the centres of FINCH's clusters of the clients' means of each class (eq. 4 and 5)."""
    return global_clusters(sets, num_classes, partition=config.partition)


METHOD = Method(
    name="fpl",
    paper="Huang et al., CVPR 2023, https://openaccess.thecvf.com/content/CVPR2023/html/Huang_Rethinking_Federated_Learning_With_Domain_Shift_A_Prototype_View_CVPR_2023_paper.html",
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
