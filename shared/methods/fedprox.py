"""FedProx: FedAvg with a proximal term that keeps each client's weights near the model that it received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127, Algorithm 2 and eq. 2.

Differs from the paper, or settles what it leaves open:

- Every client trains for as long as the configuration says: the paper's inexact solutions (gamma) are not modelled.
- The proximal term is over trainable parameters; BatchNorm's running statistics have no gradient and are left out.
- mu defaults to 0.01. The paper tunes it for each data set over the grid 0.001, 0.01, 0.1, 1. mu = 0 is FedAvg to the last
  bit.
"""

from __future__ import annotations

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.config import Coefficient, MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term


class Config(MethodConfig):
    """FedProx's hyper-parameter."""

    mu: Coefficient = 0.01
    """Coefficient of the proximal term (eq. 2). Zero leaves it out."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + mu L_prox as terms: `ce`, and `prox` = |w - w^t|^2 / 2 over all trainable parameters (eq. 2)."""
    terms = {"ce": Term(step.task_loss)}
    if config.mu:
        distance = sum(((value - step.start[name]) ** 2).sum() for name, value in step.params.items())
        terms["prox"] = Term(distance / 2, config.mu)
    return terms


METHOD = Method(
    name="fedprox",
    paper="Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    neutral={"mu": 0.0},
)
