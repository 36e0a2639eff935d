"""FedProc: the loss turns features to the centre of their class over all clients, much at first and ever less.

Mu, Shen, Cheng, Geng, Fu, Zhang, Zhang, "FedProc: Prototypical Contrastive Federated Learning on Non-IID data", Future
Generation Computer Systems, 2023, https://arxiv.org/abs/2109.12273.

Differs from the paper, or settles what it leaves open:

- z is the model's own feature. The authors' code has a projection head of 256 outputs between the features and the classes.
- Centres are scaled to length 1 and features are not, and there is no temperature, as in the authors' code.
  `similarity = "cosine"` scales features too, as the code of FPL's comparison does.
- The share of the cross-entropy is (t - 1) / T_a in round t, counted from 1, and 1 at most; T_a is `anneal_rounds`, or all
  rounds. While there is no centre, as in round 1, the loss is the cross-entropy alone.
- A centre is the mean of all samples of the class, of the clients of the round: their means, weighted by their samples. The
  authors' clients send sums and counts; ours send means and counts, whose products they are.
- A class that no client of the round reported keeps its centre of the round before.
- A sample whose class has no centre adds 0 to the contrast and counts in the mean; so does a zero feature, which has no
  direction, where the similarity is the cosine.
- Features are summarised in a pass after training.
- anneal_rounds = 0 leaves the contrast out, which is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    MIN_FEATURE_NORM,
    PrototypeConfig,
    batch_mean,
    contrast,
    has_class,
    has_positives,
    local_means,
    mean_per_class,
    same_class,
)
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term
from fedplcc.shared.types import CLASS_MEAN, FloatArray, IntArray, PrototypeSet


class Config(PrototypeConfig):
    """FedProc's hyper-parameters."""

    anneal_rounds: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Rounds over which the cross-entropy takes the place of the contrast; all rounds if not set. Zero leaves the contrast
    out."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Similarity of a feature and a centre of length 1: their dot product, or their cosine."""

    @property
    def length_key(self) -> str | None:
        """`anneal_rounds` where it is not set."""
        return "anneal_rounds" if self.anneal_rounds is None else None


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return a L_CE + (1 - a) L_C as terms: `ce`, and `proc` >= 0, the contrast with the centres of all classes.

    L_C is the mean of logsumexp_m(s(z, C^m)) - s(z, C^y); a grows from round to round.
    """
    share = task_share(step.round, step.total_rounds, config)
    prototypes = step.prototypes
    if prototypes is None or share == 1:
        return {"ce": Term(step.task_loss)}
    ops = step.ops
    is_positive_BG = same_class(step.labels_B, prototypes)
    if config.similarity == "cosine":
        similarity_BG = ops.cosine(step.features_BD, prototypes.vectors_GD)
        applies_B = has_positives(step, is_positive_BG)
    else:
        norms_G = ops.clamp_min(ops.row_norm(prototypes.vectors_GD), MIN_FEATURE_NORM)
        similarity_BG = step.features_BD @ (prototypes.vectors_GD / norms_G[:, None]).T
        applies_B = has_class(step, prototypes)
    proc = batch_mean(ops, contrast(ops, similarity_BG, is_positive_BG), applies_B)
    return {"ce": Term(step.task_loss, share), "proc": Term(proc, 1 - share)}


def task_share(round_number: int, total_rounds: int, config: Config) -> float:
    """Return a, the coefficient of the cross-entropy in a round, in [0, 1]; rounds count from 1."""
    rounds = total_rounds if config.anneal_rounds is None else config.anneal_rounds
    return 1.0 if round_number > rounds else (round_number - 1) / rounds


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the mean feature of every class that the client has, and its number of samples."""
    return local_means(features_ND, labels_N, num_classes)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return the mean of each class over all samples of the round's clients."""
    return mean_per_class(sets, num_classes, by_counts=True)


def carry_prototypes(made: PrototypeSet, previous: PrototypeSet, num_classes: int, config: Config) -> PrototypeSet:
    """Return the round's centres and, of classes that nobody reported, those of the round before, by class."""
    if not len(made):
        return previous
    is_kept_P = ~np.isin(previous.class_ids, made.class_ids)
    class_ids = np.concatenate([made.class_ids, previous.class_ids[is_kept_P]])
    order = np.argsort(class_ids, kind="stable")
    return PrototypeSet.of(
        np.concatenate([made.vectors, previous.vectors[is_kept_P]])[order],
        class_ids[order],
        np.concatenate([made.weights, previous.weights[is_kept_P]])[order],
    )


METHOD = Method(
    name="fedproc",
    paper="Mu et al., FGCS 2023, https://arxiv.org/abs/2109.12273",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PrototypeExchange(
            kind=CLASS_MEAN,
            report=client_report,
            merge=server_prototypes,
            carry=carry_prototypes,
            weights_are_counts=True,
        ),
    ),
    neutral={"anneal_rounds": 0},
)
