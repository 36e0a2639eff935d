"""FedProto: the loss pulls features to one prototype per class, the mean of all clients' mean features.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022,
https://arxiv.org/abs/2105.00243, Algorithm 1; equation numbers below are the paper's.

Differs from the paper, or settles what it leaves open:

- `share_model = true`, the default, also averages the models, as the comparisons of FPL and FedPLCC do. With false, as
  published, clients send prototypes only: each trains its own model and predicts the class of the nearest prototype.
- The distance (eq. 8) is the mean square over batch and dimensions, as in the authors' code. A sample whose class has no
  prototype adds 0 and counts in the mean.
- A global prototype is the plain mean over the clients that have the class, as in the authors' code. Eq. 6 weights them by
  samples and then divides by the number of clients, which shrinks them; `proto_avg = "counts"` weights them by samples and
  does not divide.
- Features are summarised in a pass after training. The authors' code uses the features of training's last epoch:
  `proto_pass = "last_epoch"`.
- lambda1 is the paper's lambda. With lambda1 = 0 and a shared model the method is FedAvg to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.config import Coefficient
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.methods.prototypes import (
    PrototypeConfig,
    batch_mean,
    has_class,
    local_means,
    mean_per_class,
    square_distance,
)
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Ops, Prototypes, Term
from fedplcc.shared.types import CLASS_MEAN, FloatArray, IntArray, PrototypeSet


class Config(PrototypeConfig):
    """FedProto's hyper-parameters."""

    lambda1: Coefficient = 1.0
    """Coefficient of the distance to the class's prototype (eq. 7, lambda). Zero leaves it out."""
    share_model: bool = True
    """Whether models are averaged too. If not, clients send prototypes only, and each keeps its own model."""
    proto_avg: Literal["plain", "counts"] = "plain"
    """Weights of the clients' means of a class in the server's average: equal (plain), or their samples (counts)."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + lambda1 L_R as terms (eq. 7): `ce`, and `proto`, the mean square of z - C^y (eq. 8)."""
    terms = {"ce": Term(step.task_loss)}
    if step.prototypes is None or not config.lambda1:
        return terms
    distance_B = square_distance(step, step.prototypes).mean(-1)
    terms["proto"] = Term(batch_mean(step.ops, distance_B, has_class(step, step.prototypes)), config.lambda1)
    return terms


def client_report(features_ND: FloatArray, labels_N: IntArray, num_classes: int, config: Config) -> Report:
    """Return the mean feature of every class that the client has, and its number of samples (eq. 3)."""
    return local_means(features_ND, labels_N, num_classes)


def server_prototypes(sets: Sequence[PrototypeSet], num_classes: int, config: Config) -> PrototypeSet:
    """Return one prototype for each class that any client has (eq. 6, as this module's docstring interprets it)."""
    return mean_per_class(sets, num_classes, by_counts=config.proto_avg == "counts")


def shares_model(config: Config) -> bool:
    """Whether models are averaged."""
    return config.share_model


def has_local_model(config: Config) -> bool:
    """Whether each client keeps its own model."""
    return not config.share_model


def own_model(received: ModelArrays, state: ClientState | None, config: Config) -> ModelArrays | None:
    """Return the client's own model, or None if models are shared or it has none yet."""
    return None if config.share_model else state


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return the trained model if models are not shared, else nothing."""
    return {} if config.share_model else end.trained


def scores(ops: Ops, features_BD: Array, logits_BM: Array, prototypes: Prototypes | None, config: Config) -> Array:
    """Return minus the mean square distance to each class's prototype, `[B, M]`.

    The class of the nearest prototype wins (the paper's section 3.4). A class without a prototype never wins. Without any
    prototypes the scores are the logits.
    """
    if prototypes is None:
        return logits_BM
    gap_BMD = features_BD[:, None, :] - prototypes.class_means_MD[None, :, :]
    is_known_1M = (prototypes.class_sizes_M > 0)[None, :]
    return ops.where(is_known_1M, -(gap_BMD**2).mean(-1), -float("inf"))


METHOD = Method(
    name="fedproto",
    paper="Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PrototypeExchange(
            kind=CLASS_MEAN,
            report=client_report,
            merge=server_prototypes,
            comparison="distance",
            weights_are_counts=True,
            scores=scores,
            own_scores=scores,
        ),
        KeptState(after=next_client_state),
        OwnModel(local=own_model, start=own_model, is_kept=has_local_model, is_shared=shares_model),
    ),
    neutral={"lambda1": 0.0},
)
