"""FedPLCC: a contrast and a correlation with weighted prototypes of all domains; FINCH chooses the number of clusters.

"An Enhanced Federated Prototype Learning Method under Domain Shift", 2024, https://arxiv.org/abs/2409.18578,
Algorithm 1; equation numbers below are the paper's.

Differs from the paper, or settles what it leaves open:

- Loss terms are means over the mini-batch (eq. 5 sums over a client's data, eq. 6 and 8 do not say). A sample whose class
  has no prototype, or whose feature is zero, adds 0 to both prototype terms and counts in the mean.
- Cosines are floored at 1e-4 before the power alpha (eq. 7): the power is undefined below 0 and infinitely steep at 0.
- Eq. 6 is computed as a difference of log-sum-exps with log W added to the exponents, which is the same number.
- k = ceil(phi C - 1e-9), at least 1 (eq. 8): in binary fractions 0.07 * 100 exceeds 7, and its plain ceiling would be 8.
- A term whose coefficient is 0 is left out, so lambda1 = lambda2 = 0 is FedAvg to the last bit. Before the first
  aggregation there are no prototypes and the loss is the cross-entropy.
- The paper does not name FINCH's level; the default is the last partition. The paper does not define the server's centres
  either: a centre is the plain mean of the local prototypes in its cluster. `merge_mean = "weighted"` takes the mean of
  all samples behind them.
- tau is 0.07 as in the paper's set-up. The paper later calls 0.55 "lower" than that, which must be a misprint.
- The defaults of lambda1 and lambda2 are those for Digit-5 (Office-10: 20 and 200, DomainNet: 1 and 10). They are set
  independently of each other.
- `ramp_rounds` is an addition: both coefficients grow in equal steps. As published, the prototype terms act from round 2
  on, with coefficients of 100 and 1000, on a nearly untrained extractor whose prototypes mean little: accuracy falls to
  chance, and recovers in a different round of every run.
- `corr_margin` is an addition: a chosen prototype adds nothing to eq. 8 where the similarity of eq. 7 has reached it.
- `weights_by`, `weights_over`, `weights_in` and `corr_over` are other readings of eq. 6, 8 and 11. The paper's Table V does
  not come out under the one that its equations print, and its code is not public.
- Zero features, and clusters below `min_cluster_size` (1, as published), are not uploaded and are reported as excluded.
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
    WeightsOver,
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
    """FedPLCC's hyper-parameters; the defaults are the paper's for Digit-5."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Power of the cosine (eq. 7); dimensionless. 1 is the plain cosine."""
    tau: Temperature = 0.07
    """Temperature of the contrast (eq. 6); dimensionless."""
    phi: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a class's prototypes that the correlation pulls a feature to (eq. 8)."""
    lambda1: Coefficient = 100.0
    """Coefficient of the contrast (eq. 4). Zero leaves it out."""
    lambda2: Coefficient = 1000.0
    """Coefficient of the correlation (eq. 4), ten times lambda1 in the paper. Zero leaves it out."""
    topk_rank: Literal["weighted", "similarity"] = "weighted"
    """Ranking of a class's prototypes in eq. 8: by similarity times weight, as published, or by similarity alone."""
    merge_mean: Literal["plain", "weighted"] = "plain"
    """Weights of a cluster's local prototypes in the server's average: equal (plain), or their samples (weighted)."""
    unit_weights: bool = False
    """Whether the loss uses weight 1 for every prototype (the ablation w = 1 of Table V)."""
    ramp_rounds: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds over which both coefficients grow in equal steps: round t uses min(1, (t - 1) / ramp_rounds) of each. With 0
    both have their full value from round 2 on, as published."""
    corr_margin: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Similarity (eq. 7) from which on a chosen prototype of eq. 8 adds nothing and has no gradient: features that are near
    enough are not pulled any more. With 1 all are pulled, as published."""
    weights_by: Literal["samples", "prototypes"] = "samples"
    """Weights that eq. 11 normalises: the samples behind each prototype, as published, or 1 for each prototype, so that the
    C prototypes of a class weigh 1/C."""
    weights_over: WeightsOver = "class"
    """Prototypes whose weights eq. 11 makes sum to 1: those of a class, as published, or all. Where classes have equally
    many samples, all makes the correlation smaller by the number of classes and leaves the contrast as it is."""
    weights_in: Literal["sum", "exponent"] = "sum"
    """Place of a weight in the contrast (eq. 6): a factor of the exponential in both sums, as published, or a factor of the
    similarity within the exponential."""
    corr_over: Literal["class", "all"] = "class"
    """Prototypes that eq. 8 ranks and pulls a feature to: those of its class, as published, or those of all classes.
    With all, `phi` is a share of all, and the correlation is at least minus the sum of all weights."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + lambda1 L_contra + lambda2 L_corr as terms (eq. 4): `ce`, `contra` >= 0 and `corr` in [-1, 0].

    Other readings than the published one can take `corr` below -1.
    """
    terms = {"ce": Term(step.task_loss)}
    prototypes = step.prototypes
    if prototypes is None or config.lambda1 == config.lambda2 == 0:
        return terms
    ops = step.ops
    strength = min(1.0, (step.round - 1) / config.ramp_rounds) if config.ramp_rounds else 1.0
    weights_G = prototypes.weights_G**0 if config.unit_weights else prototypes.weights_G
    similarity_BG = sparse_cosine(ops, step.features_BD, prototypes.vectors_GD, config.alpha, SIMILARITY_FLOOR)
    is_positive_BG = same_class(step.labels_B, prototypes)
    applies_B = has_positives(step, is_positive_BG)
    if config.lambda1:
        if config.weights_in == "exponent":
            logits_BG = similarity_BG * weights_G / config.tau
        else:
            logits_BG = similarity_BG / config.tau + ops.log(weights_G)
        contra_B = contrast(ops, logits_BG, is_positive_BG)
        terms["contra"] = Term(batch_mean(ops, contra_B, applies_B), strength * config.lambda1)
    if config.lambda2:
        corr_B = _correlation(step, prototypes, similarity_BG * weights_G, similarity_BG, is_positive_BG, config)
        terms["corr"] = Term(batch_mean(ops, corr_B, applies_B), strength * config.lambda2)
    return terms


def _correlation(
    step: ClientStep,
    prototypes: Prototypes,
    pull_BG: Array,
    similarity_BG: Array,
    is_positive_BG: Array,
    config: Config,
) -> Array:
    """Return minus the sum of the pulls s W of the top ceil(phi C) prototypes of each sample's class (eq. 8), `[B]`.

    With `corr_over = "all"` the prototypes of all classes are ranked as if they were those of each.
    """
    ops = step.ops
    is_ranked_BG, sizes_M = is_positive_BG, prototypes.class_sizes_M
    if config.corr_over == "all":
        is_ranked_BG, sizes_M = is_positive_BG | ~is_positive_BG, sizes_M * 0 + sizes_M.sum()
    rank_BG = pull_BG if config.topk_rank == "weighted" else similarity_BG
    # -(-x // 1) is the ceiling of x in operators.
    count_M = ops.clamp_min(-((1e-9 - config.phi * sizes_M) // 1), 1.0)
    is_chosen_BG = ops.largest(rank_BG, is_ranked_BG, count_M[step.labels_B])
    if config.corr_margin < 1:  # a similarity of 1 can be rounded up, and is pulled as published
        is_chosen_BG = is_chosen_BG & (similarity_BG < config.corr_margin)
    return -ops.where(is_chosen_BG, pull_BG, 0.0).sum(-1)


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return (P_k^m, W_k^m) = FINCH*(features of class m, ones) for every class m that the client has (eq. 9)."""
    return local_clusters(features_ND, labels_N, num_classes, config)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return (G^m, W^m) = FINCH* of the pooled local prototypes (eq. 10), W normalised per class (eq. 11)."""
    return global_clusters(
        sets,
        num_classes,
        partition=config.partition,
        merge_mean=config.merge_mean,
        is_equal=config.weights_by == "prototypes",
        over=config.weights_over,
    )


METHOD = Method(
    name="fedplcc",
    paper="An Enhanced Federated Prototype Learning Method under Domain Shift, 2024, https://arxiv.org/abs/2409.18578",
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
    neutral={"lambda1": 0.0, "lambda2": 0.0},
)
