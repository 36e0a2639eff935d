"""MOON: the loss pulls a client's features to those of the received model, away from those of its last local model.

Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, https://arxiv.org/abs/2103.16257, Algorithm 1 and eq. 3.

Differs from the paper, or settles what it leaves open:

- The representation z is the model's feature, the input of the classifier. The paper adds a projection head of two layers
  between them. Here the model decides: a model that has its own head, as timm:NAME may, is used with it.
- The reference models are in evaluation mode and without gradient.
- The previous model is the local model of the client's last committed update, which may be older than the last round: a
  client that is not selected, or whose update comes too late, keeps the model that it has.
- When a client takes part for the first time, the previous model is the received one: both cosines are equal, the contrast
  is the constant log 2 and its gradient 0. The term is left out, so the round equals FedAvg's without rounding.
- A zero feature has no direction, and the gradient of its cosine would be one over the floor of the norm. Such a sample
  adds 0 to the contrast and counts in the mean.
- mu is 1, the paper's value for all data sets but CIFAR-10 (5). mu = 0 is FedAvg to the last bit, and clients keep nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.config import Coefficient, MethodConfig, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.parts.references import ReferenceModels
from fedplcc.shared.methods.prototypes import MIN_FEATURE_NORM, batch_mean
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term

RECEIVED, PREVIOUS = "received", "previous"
"""Names of the reference models: the round's global model, and the client's local one of its last committed update."""


class Config(MethodConfig):
    """MOON's hyper-parameters."""

    mu: Coefficient = 1.0
    """Coefficient of the contrast (eq. 4). Zero leaves it out."""
    tau: Temperature = 0.5
    """Temperature of the contrast (eq. 3); dimensionless."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + mu L_con as terms: `ce`, and `contrast` > 0 if the client has taken part before.

    L_con = -log(exp(a) / (exp(a) + exp(b))) = softplus(b - a) with a = cos(z, z_glob) / tau and b = cos(z, z_prev) / tau.
    """
    terms = {"ce": Term(step.task_loss)}
    references = step.reference_features
    if not config.mu or PREVIOUS not in references:
        return terms
    ops, z_BD = step.ops, step.features_BD
    nearness_B = ops.paired_cosine(z_BD, references[PREVIOUS]) - ops.paired_cosine(z_BD, references[RECEIVED])
    has_direction_B = ops.row_norm(z_BD) > MIN_FEATURE_NORM
    terms["contrast"] = Term(batch_mean(ops, ops.softplus(nearness_B / config.tau), has_direction_B), config.mu)
    return terms


def reference_models(received: ModelArrays, state: ClientState | None, config: Config) -> Mapping[str, ModelArrays]:
    """Return the received model and the previous local model; no model where the contrast is left out."""
    if not config.mu or state is None:
        return {}
    return {RECEIVED: received, PREVIOUS: state}


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return the trained model, which the client also sends."""
    return end.trained if config.mu else {}


METHOD = Method(
    name="moon",
    paper="Li, He, Song, CVPR 2021, https://arxiv.org/abs/2103.16257",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(KeptState(after=next_client_state), ReferenceModels(models=reference_models)),
    neutral={"mu": 0.0},
)
