"""FedNTD: the loss keeps what the received model says of all classes but the true one.

Lee, Jeong, Shin, Bae, Yun, "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning",
NeurIPS 2022, https://arxiv.org/abs/2106.03097.

Differs from the paper, or settles what it leaves open:

- The distillation is multiplied by tau^2, as in the authors' code, so that its gradient has one size for all temperatures.
  tau is 1, as that code's configuration has it, and with 1 the factor changes nothing; a function there has 3 as default.
- The teacher is the round's global model in evaluation mode and without gradient. It sees the same augmented images.
- Of two classes only one is not the true one: its probability is always 1, and the term 0.
- The teacher is there from round 1 on, so round 1 is not FedAvg's, as it is for methods that need an earlier round.
- beta = 0 is FedAvg to the last bit, without a second pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.methods.config import Coefficient, MethodConfig, Temperature
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.references import ReferenceModels
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term

TEACHER = "teacher"
"""Name of the reference model: the round's global model."""


class Config(MethodConfig):
    """FedNTD's hyper-parameters."""

    beta: Coefficient = 1.0
    """Coefficient of the not-true distillation. Zero leaves it out."""
    tau: Temperature = 1.0
    """Temperature of teacher and student; dimensionless."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + beta L_NTD as terms: `ce`, and `ntd` >= 0.

    L_NTD = tau^2 KL(p || q), the mean over the batch; p and q are the softmax of the teacher's and of the student's logits
    over tau, without the true class's entry.
    """
    terms = {"ce": Term(step.task_loss)}
    if not config.beta or TEACHER not in step.reference_logits:
        return terms
    ops, logits_BM = step.ops, step.logits_BM
    not_true_BM = ~ops.is_class(step.labels_B, logits_BM.shape[-1])
    teacher_BM, student_BM = step.reference_logits[TEACHER] / config.tau, logits_BM / config.tau
    log_p_BM = teacher_BM - ops.logsumexp(teacher_BM, not_true_BM)[:, None]
    log_q_BM = student_BM - ops.logsumexp(student_BM, not_true_BM)[:, None]
    # The true class's entry may be of any size: it is taken out before exp, and before it meets a gradient.
    p_BM = ops.exp(ops.where(not_true_BM, log_p_BM, 0.0))
    divergence_B = (p_BM * ops.where(not_true_BM, log_p_BM - log_q_BM, 0.0)).sum(-1)
    terms["ntd"] = Term(config.tau**2 * divergence_B.mean(), config.beta)
    return terms


def reference_models(received: ModelArrays, state: ClientState | None, config: Config) -> Mapping[str, ModelArrays]:
    """Return the received model; no model where the distillation is left out."""
    return {TEACHER: received} if config.beta else {}


METHOD = Method(
    name="fedntd",
    paper="Lee et al., NeurIPS 2022, https://arxiv.org/abs/2106.03097",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(ReferenceModels(models=reference_models),),
    neutral={"beta": 0.0},
)
