"""FedRep: clients share the base of the model, and each has a head of its own.

Collins, Hassani, Mokhtari, Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021,
https://arxiv.org/abs/2102.07078, Algorithm 1.

Differs from the paper, or settles what it leaves open:

- A client's head begins as that of the first model it receives, and from its first committed update on is its own. The
  paper's heads begin at random.
- `head_epochs` passes train the head, then the base is trained for as long as `[training]` says. The part that is not
  trained is in evaluation mode, so that its BatchNorm statistics stay; each part has an optimiser of its own.
- `upload_head = true` averages heads too, which gives a global model to evaluate beside the clients' own ones; no client
  goes on from it. With false, as published, no head leaves a client, and the global model has the head of round 0.
- The server's mean is weighted by samples; the paper's is plain (`averaging = "equal"`).
- The paper's last fine-tuning of heads after the last round is left out: each round ends with what is evaluated.
- `personal = "batch_norm"` keeps BatchNorm layers in the place of the head and trains all of the model in one phase: FedBN,
  Li, Jiang, Zhang, Kamp, Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021,
  https://arxiv.org/abs/2102.07623. Their means go into the global model alone. `personal = "none"` is FedAvg to the last
  bit.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.personal import Personal, PersonalTensors
from fedplcc.shared.methods.parts.phases import Phase, TrainingPhases
from fedplcc.shared.methods.step import ClientStep, LossTerms


class Config(MethodConfig):
    """FedRep's hyper-parameters."""

    personal: Personal = "head"
    """Tensors that each client keeps for itself: its head, its BatchNorm layers (batch_norm), or none, which is FedAvg."""
    head_epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Passes that train a personal head alone, before the base is trained for as long as `[training]` says."""
    upload_head: bool = True
    """Whether personal heads are averaged too, for a global model. If not, none leaves its client."""

    @field_validator("upload_head")
    @classmethod
    def _a_head_that_is_kept(cls, upload_head: bool, known: ValidationInfo) -> bool:
        if not upload_head and known.data.get("personal", "head") != "head":
            raise ValueError('only a personal head can stay with its client: leave it out, or set personal = "head"')
        return upload_head


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return FedAvg's terms."""
    return fedavg.client_loss(step, config)


def personal(config: Config) -> Personal:
    """Return the tensors that clients keep."""
    return config.personal


def uploads_personal(config: Config) -> bool:
    """Whether updates have them all the same."""
    return config.upload_head


def phases(config: Config) -> tuple[Phase, ...]:
    """Return the phase of the head and that of the base; without personal heads one of all."""
    if config.personal != "head":
        return (Phase(),)
    return Phase(trains="head", epochs=config.head_epochs), Phase(trains="base")


METHOD = Method(
    name="fedrep",
    paper="Collins et al., ICML 2021, https://arxiv.org/abs/2102.07078",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(PersonalTensors(which=personal, is_uploaded=uploads_personal), TrainingPhases(phases=phases)),
    neutral={"personal": "none", "upload_head": True},
)
