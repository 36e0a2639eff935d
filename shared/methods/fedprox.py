"""FedProx: FedAvg whose clients are held near the model that they received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
https://arxiv.org/abs/1812.06127, Algorithm 2 and eq. 2.

Differs from the paper, or settles what it leaves open:

- Every client trains for as long as the configuration says: the paper's inexact solutions (gamma) are not modelled.
- The proximal term is over trainable parameters; BatchNorm's running statistics have no gradient and are left out.
- mu is 0.01, the most usual of the grid 0.001, 0.01, 0.1, 1; the paper tunes it per data set. mu = 0 is FedAvg to the last
  bit.
"""

from __future__ import annotations

from shared.methods import fedavg
from shared.methods.base import ClientStep, Coefficient, LossTerms, Method, MethodConfig, Term


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
