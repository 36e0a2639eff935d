"""FCCL+: clients agree on unlabelled public images, by logits and similarities, and keep what they knew while they train.

Huang, Ye, Shi, Du, "Generalizable Heterogeneous Federated Cross-Correlation and Instance Similarity Learning", IEEE TPAMI
2024, https://arxiv.org/abs/2309.16286; section 22 of docs/algorithms.md has the formulas.

Differs from the paper, or settles what it leaves open:

- Public images are at the clients, and each exchanges logits and similarities once a round. The authors' code has all
  models in one place and takes new means after every batch; here targets stand for the round.
- Similarities travel, features never do: the server takes plain means of both.
- Correlations of different classes are pushed to -1, with weight 0.0051; standard deviations are unbiased, plus
  1e-5, as in the authors' code.
- The non-target parts of both softmaxes are not renormalised, as in the authors' code: the distillation may be negative.
- One Adam for a whole pass over the public images; the authors' code makes a new one for every batch. A client's own
  training has the run's optimiser.
- `share_model = true`, the default, also averages the models, as the comparison of the benchmark MarsFL does.
- With all three coefficients 0 and shared models it is FedAvg to the last bit, and needs no public images.

Shape legend: B batch, D feature size, M classes, n public images of whole batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import ArrayGroup, ClientState, GroupSchema, ModelArrays
from fedplcc.shared.methods.config import Coefficient, MethodConfig
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.own_model import OwnModel
from fedplcc.shared.methods.parts.part import ClientEnd, ServerResult, ServerRound
from fedplcc.shared.methods.parts.public import PUBLIC, PublicLearning, PublicStep
from fedplcc.shared.methods.parts.references import ReferenceModels
from fedplcc.shared.methods.prototypical.fedproto import has_local_model, own_model, shares_model
from fedplcc.shared.methods.step import Array, ClientStep, LossTerms, Term

TEACHER = "teacher"
LOGITS, SIMILARITIES = "logits", "similarities"
TEMPERATURE = 3.0
"""T of the distillation; dimensionless."""
SIMILARITY_TEMPERATURE = 0.02
"""Divisor of cosine similarities."""
OFF_DIAGONAL = 0.0051
"""Weight of the correlations between different classes."""
MAX_LOGIT = 1e6
"""Largest size of an uploaded logit."""
SLACK = 1e-3
"""By how much a similarity may be beyond 1 / 0.02: rounding of float32."""


class Config(MethodConfig):
    """FCCL+'s hyper-parameters."""

    teacher: Literal["previous", "global"] = "previous"
    """Model whose knowledge a client keeps while it trains: that of its own last committed update (previous), or the round's
    (global)."""
    share_model: bool = True
    """Whether models are averaged too. If not, clients send what they make of public images only, and each keeps its own
    model."""
    public_batch: Annotated[int, Field(ge=2, le=1024)] = 64
    """Public images of a batch; a smaller rest is left out."""
    public_lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    """Learning rate of Adam on public images."""
    kd: Coefficient = 1.0
    """Coefficient of the distillation. Zero leaves it out."""
    corr: Coefficient = 1.0
    """Coefficient of the cross-correlation of logits. Zero leaves it out."""
    isd: Coefficient = 3.0
    """Coefficient of the divergence of similarities. Zero leaves it out."""

    @model_validator(mode="after")
    def _a_teacher_that_learns(self) -> Self:
        if self.teacher == "global" and not self.share_model:
            raise ValueError(
                'teacher = "global" needs share_model = true: models that nobody averages have no global one'
            )
        return self


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + kd T^2 KL_nontarget (docs/algorithms.md, rule 22.2) as terms: `ce`, and `kd` where there is a teacher.

    KL_nontarget is the sum of t (log t - log p) over all classes but the true one, the mean over the batch; t and p are the
    softmax of the teacher's and of the client's logits over T.
    """
    terms = {"ce": Term(step.task_loss)}
    if not config.kd or TEACHER not in step.reference_logits:
        return terms
    ops, logits_BM = step.ops, step.logits_BM
    log_t_BM = _log_softmax(step, step.reference_logits[TEACHER] / TEMPERATURE)
    log_p_BM = _log_softmax(step, logits_BM / TEMPERATURE)
    is_other_BM = ~ops.is_class(step.labels_B, logits_BM.shape[-1])
    divergence_B = (ops.exp(log_t_BM) * ops.where(is_other_BM, log_t_BM - log_p_BM, 0.0)).sum(-1)
    terms["kd"] = Term(TEMPERATURE**2 * divergence_B.mean(), config.kd)
    return terms


def public_loss(step: PublicStep, config: Config) -> LossTerms:
    """Return corr L_corr + isd L_isd on a batch (docs/algorithms.md, rule 22.1) as terms: `corr` and `isd`.

    L_corr is the sum of (C_mm - 1)^2 and 0.0051 (C_mn + 1)^2, C [M, M] the cross-correlation over the batch of this client's
    logits and the mean ones. L_isd is KL of the softmaxes of mean similarities and this client's, the mean over the batch.
    """
    terms = {}
    if config.corr:
        own_BM, mean_BM = _standardised(step, step.logits_BM), _standardised(step, step.targets[LOGITS])
        c_MM = own_BM.T @ mean_BM / len(own_BM)
        c_M = (own_BM * mean_BM).sum(0) / len(own_BM)
        others = ((c_MM + 1) ** 2).sum() - ((c_M + 1) ** 2).sum()
        terms["corr"] = Term(((c_M - 1) ** 2).sum() + OFF_DIAGONAL * others, config.corr)
    if config.isd:
        log_mean_BB = _log_softmax(step, step.targets[SIMILARITIES])
        log_own_BB = _log_softmax(step, _similarities(step))
        divergence_B = (step.ops.exp(log_mean_BB) * (log_mean_BB - log_own_BB)).sum(-1)
        terms["isd"] = Term(divergence_B.mean(), config.isd)
    return terms


def public_outputs(step: PublicStep, config: Config) -> Mapping[str, Array]:
    """Return logits `[B, M]`, and `[B, B - 1]` each image's similarity to the others of the batch over 0.02."""
    return {LOGITS: step.logits_BM, SIMILARITIES: _similarities(step)}


def public_schema(config: Config, num_classes: int, num_images: int) -> GroupSchema:
    """Return the arrays of the group: logits and similarities of all public images."""
    return {
        LOGITS: ("F32", (num_images, num_classes)),
        SIMILARITIES: ("F32", (num_images, config.public_batch - 1)),
    }


def uses_public(config: Config) -> bool:
    """Whether a term of public images counts."""
    return bool(config.corr or config.isd)


def upload_fault(found: Mapping[str, ArrayGroup], class_counts: object, config: Config) -> str | None:
    """Return what is wrong with the values of a client's group."""
    if PUBLIC not in found:
        return None
    for name, most in ((LOGITS, MAX_LOGIT), (SIMILARITIES, 1 / SIMILARITY_TEMPERATURE + SLACK)):
        largest = float(np.abs(found[PUBLIC][name]).max(initial=0.0))
        if largest > most:
            return f"the {name} of public images reach {largest:.6g}, and {most:g} is the most that they can be"
    return None


def server_step(step: ServerRound, config: Config) -> ServerResult:
    """Return the plain means of the clients' groups, added in their order in float64 and rounded once."""
    sums: dict[str, np.ndarray] = {}
    count = 0
    for upload in step.uploads:
        for name, array in upload.get(PUBLIC, {}).items():
            sums[name] = sums[name] + array if name in sums else array.astype(np.float64)
        count += 1
    return ServerResult(
        arrays={PUBLIC: {name: to_float32(each / count) for name, each in sums.items()}} if sums else {}
    )


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return the trained model where it is the next teacher or start, else nothing."""
    is_teacher = config.teacher == "previous" and config.kd
    return end.trained if is_teacher or not config.share_model else {}


def reference_models(received: ModelArrays, state: ClientState | None, config: Config) -> Mapping[str, ModelArrays]:
    """Return the teacher; no model where there is none yet, or the distillation is left out."""
    teacher = received if config.teacher == "global" else state
    return {TEACHER: teacher} if config.kd and teacher is not None else {}


def _log_softmax(step: ClientStep | PublicStep, x: Array) -> Array:
    return x - step.ops.logsumexp(x)[:, None]


def _standardised(step: PublicStep, logits_BM: Array) -> Array:
    """Return columns of mean 0 over the batch, divided by their unbiased standard deviation plus 1e-5."""
    gap_BM = logits_BM - logits_BM.mean(0)
    variance_M = (gap_BM**2).sum(0) / (len(logits_BM) - 1)
    # A square root has no slope at 0: columns of one value count as constants.
    return gap_BM / (step.ops.clamp_min(variance_M, 1e-30) ** 0.5 + 1e-5)


def _similarities(step: PublicStep) -> Array:
    size = len(step.places_B)
    cosine_BB = step.ops.cosine(step.features_BD, step.features_BD)
    return cosine_BB[~step.ops.is_class(step.places_B, size)].reshape(size, size - 1) / SIMILARITY_TEMPERATURE


METHOD = Method(
    name="fcclplus",
    paper="Huang et al., TPAMI 2024, https://arxiv.org/abs/2309.16286",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        PublicLearning(
            is_used=uses_public,
            batch_size=lambda config: config.public_batch,
            learning_rate=lambda config: config.public_lr,
            schema=public_schema,
            outputs=public_outputs,
            loss=public_loss,
            step=server_step,
            fault=upload_fault,
        ),
        KeptState(after=next_client_state),
        ReferenceModels(models=reference_models),
        OwnModel(local=own_model, start=own_model, is_kept=has_local_model, is_shared=shares_model),
    ),
    neutral={"kd": 0.0, "corr": 0.0, "isd": 0.0},
)
