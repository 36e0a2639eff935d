"""FedAvg: each client trains on its own data, and the server averages their models, weighted by samples.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas, "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017, https://arxiv.org/abs/1602.05629, Algorithm 1.

Differs from the paper: BatchNorm statistics are averaged like weights (the paper's models have no BatchNorm); integer
buffers, such as `num_batches_tracked`, take the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.maths import weighted_mean
from fedplcc.shared.methods.method import Method, ReadBlock
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term


class Config(MethodConfig):
    """FedAvg has no hyper-parameters of its own."""


def client_loss(step: ClientStep, config: MethodConfig) -> LossTerms:
    """Return the cross-entropy, the mean over the batch."""
    return {"ce": Term(step.task_loss)}


def fold(
    read_state: ReadBlock, update_blocks: Iterable[Block], weights: Sequence[float], config: MethodConfig
) -> Block:
    """Return sum_k n_k w_k / sum_k n_k for floats, the elementwise maximum for integers; `fold_weights` makes the n_k."""
    return weighted_mean(update_blocks, weights)


METHOD = Method(
    name="fedavg",
    paper="McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629",
    config=Config,
    client_loss=client_loss,
    fold=fold,
    neutral={},
)
