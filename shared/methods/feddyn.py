"""FedDyn: each client's loss gets a linear and a quadratic term that let its optimum agree with the federation's.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama, "Federated Learning Based on Dynamic Regularization", ICLR 2021,
https://arxiv.org/abs/2111.04263, Algorithm 1, as the authors' code has it (github.com/alpemreacar/FedDyn).

Differs from the paper, or settles what it leaves open:

- h_k is the sum of a client's changes w_k - w^t: the paper's gradient is -alpha h_k. Nothing travels beyond FedAvg: the
  server computes its h, the mean of all clients' h_k, from the updates.
- alpha_k = alpha Nbar / N_k, as the authors' code weighs it, by the samples that clients had when they were admitted;
  `adaptive = false` is alpha for everybody.
- The mean of the models is plain, as in the paper; `averaging` weighs buffers alone, which take no correction.
- The next round starts from mean + h. Evaluated and fetched is the mean, as the paper's curves are; `evaluate = "sent"` is
  mean + h.
- K counts the clients of the roster that may take part in the round. A client that comes later begins with h_k = 0.
- Use `training.clip_norm = 10` with it, as the authors' code does.
- alpha = 0 leaves both terms out, and is not FedAvg all the same: h goes on to move the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import Block, ClientState
from fedplcc.shared.methods.config import Coefficient, MethodConfig
from fedplcc.shared.methods.maths import to_float32, unrounded_mean
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.kept_state import KeptState
from fedplcc.shared.methods.parts.part import ClientEnd, TaskView
from fedplcc.shared.methods.parts.slots import FoldedBlock, ServerSlots, ServerView
from fedplcc.shared.methods.parts.task_numbers import TaskNumbers
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term

ALPHA, H = "alpha", "h"
"""Number beside the task: alpha_k. Slot: the mean of all clients' h_k."""


class Config(MethodConfig):
    """FedDyn's hyper-parameters."""

    alpha: Coefficient = 0.01
    """Coefficient of both terms. Zero leaves them out."""
    adaptive: bool = True
    """Whether alpha is multiplied by the mean number of samples over the client's own."""
    evaluate: Literal["mean", "sent"] = "mean"
    """Model that is evaluated and fetched: the mean of the clients' models, or what the next round starts from."""


def scalars(view: TaskView, config: Config) -> Mapping[str, float]:
    """Return alpha_k."""
    if not config.adaptive or not view.num_examples:
        return {ALPHA: config.alpha}
    return {ALPHA: config.alpha * view.mean_examples / view.num_examples}


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return L_CE + alpha_k (<w, h_k> + |w - w^t|^2 / 2) as terms: `ce`, `linear` from a second update on, and `prox`."""
    terms = {"ce": Term(step.task_loss)}
    alpha = step.scalars.get(ALPHA, config.alpha)
    if not alpha:
        return terms
    if step.kept:
        terms["linear"] = Term(sum((value * step.kept[name]).sum() for name, value in step.params.items()), alpha)
    distance = sum(((value - step.start[name]) ** 2).sum() for name, value in step.params.items())
    terms["prox"] = Term(distance / 2, alpha)
    return terms


def loss_state(state: ClientState, config: Config) -> ClientState:
    """Return h_k."""
    return state


def next_client_state(end: ClientEnd, config: Config) -> ClientState:
    """Return h_k + w_k - w^t of every trained tensor, rounded once from float64."""
    before = end.state or {}
    return {
        name: to_float32(before.get(name, np.float64(0)) + (end.trained[name].astype(np.float64) - end.received[name]))
        for name in end.parameters
    }


def server_slots(config: Config) -> Mapping[str, float]:
    """Return h, which begins at 0."""
    return {H: 0.0}


def has_start(config: Config) -> bool:
    """Whether the result is not what the next round starts from."""
    return config.evaluate == "mean"


def slot_fold(
    start_block: Block,
    update_blocks: Iterable[Block],
    weights: Sequence[float],
    slot_blocks: Mapping[str, Block],
    view: ServerView,
    config: Config,
) -> FoldedBlock:
    """Return the plain mean, h + (1/K) sum_k (w_k - w^t), and mean + h, each rounded once."""
    mean = unrounded_mean(update_blocks, [1.0] * len(weights))
    h = slot_blocks[H].astype(np.float64) + (mean - start_block) * (len(weights) / view.num_eligible)
    slots, sent = {H: to_float32(h)}, to_float32(mean + h)
    if has_start(config):
        return FoldedBlock(result=to_float32(mean), slots=slots, start=sent)
    return FoldedBlock(result=sent, slots=slots)


METHOD = Method(
    name="feddyn",
    paper="Acar et al., ICLR 2021, https://arxiv.org/abs/2111.04263",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(
        ServerSlots(first_values=server_slots, fold=slot_fold, has_start=has_start),
        KeptState(after=next_client_state, for_loss=loss_state),
        TaskNumbers(of=scalars),
    ),
)
