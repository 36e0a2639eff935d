"""FedOpt: FedAvg's clients under a server that takes the round's mean change of the model as a gradient.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan, "Adaptive Federated Optimization", ICLR 2021,
https://arxiv.org/abs/2003.00295, Algorithm 2: FedAdam, FedYogi and FedAdagrad. `server_opt = "sgdm"` is FedAvgM of Hsu, Qi,
Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
https://arxiv.org/abs/1909.06335.

Differs from the papers, or settles what they leave open:

- Delta is the mean weighted by samples minus the model that the round started from; `averaging = "equal"` gives the papers'
  plain mean.
- v begins at tau^2, the least that the paper allows, m at 0; there is no correction of the bias. Both are float32, rounded
  once a round from float64; so is the model.
- FedAdagrad takes m too, as the paper's Algorithm 2 writes it.
- The server's rate is 0.01, for sgdm 1. The paper tunes it for each data set.
- Only trainable parameters are stepped. BatchNorm statistics are averaged, integer buffers take the maximum.
- sgdm with `server_lr = 1` and `beta1 = 0` is FedAvg to the last bit: the mean itself, and no slot.
- A value beyond float32's range becomes its largest one: no number of a client makes the model NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.maths import to_float32, unrounded_mean
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.slots import FoldedBlock, ServerSlots, ServerView
from fedplcc.shared.methods.step import ClientStep, LossTerms

M, V = "m", "v"
"""Slots: the running mean of the changes, and of their squares."""

Rate = Annotated[float, Field(gt=0, le=1e3)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class Config(MethodConfig):
    """FedOpt's hyper-parameters."""

    server_opt: Literal["adam", "yogi", "adagrad", "sgdm"] = "adam"
    """The server's optimiser: FedAdam, FedYogi, FedAdagrad, or SGD with momentum (FedAvgM)."""
    server_lr: Rate | None = None
    """The server's learning rate eta. Not set: 0.01, for sgdm 1.0."""
    beta1: Momentum = 0.9
    """Share of the earlier m that stays in it; for sgdm the momentum."""
    beta2: Momentum = 0.99
    """Share of the earlier v that stays in it (adam and yogi)."""
    adaptivity: Annotated[float, Field(ge=1e-9, le=1e3)] = 1e-3
    """tau, added to the root of v, whose first value is its square (adam, yogi and adagrad)."""

    @property
    def rate(self) -> float:
        """Eta."""
        if self.server_lr is not None:
            return self.server_lr
        return 1.0 if self.server_opt == "sgdm" else 0.01


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return FedAvg's terms."""
    return fedavg.client_loss(step, config)


def server_slots(config: Config) -> Mapping[str, float]:
    """Return m, and v where the optimiser is adaptive; nothing where the step is the mean itself."""
    if config.server_opt == "sgdm":
        return {} if config.rate == 1 and config.beta1 == 0 else {M: 0.0}
    return {M: 0.0, V: config.adaptivity**2}


def stepped(
    start: Block, delta: Block, slots: Mapping[str, Block], config: Config
) -> tuple[Block, Mapping[str, Block]]:
    """Return the model after one step of the server, and its slots; everything in float64.

    m <- beta1 m + (1 - beta1) Delta, for sgdm beta1 m + Delta; then v by the optimiser, and
    w <- w + eta m / (sqrt(v) + tau), for sgdm w + eta m.
    """
    if config.server_opt == "sgdm":
        m = config.beta1 * slots[M] + delta
        return start + config.rate * m, {M: m}
    m = config.beta1 * slots[M] + (1 - config.beta1) * delta
    v = _second_moment(slots[V], delta * delta, config)
    return start + config.rate * m / (np.sqrt(v) + config.adaptivity), {M: m, V: v}


def _second_moment(v: Block, square: Block, config: Config) -> Block:
    if config.server_opt == "adagrad":
        return v + square
    if config.server_opt == "yogi":
        sign: Block = np.sign(v - square)
        return v - (1 - config.beta2) * square * sign
    return config.beta2 * v + (1 - config.beta2) * square


def slot_fold(
    start_block: Block,
    update_blocks: Iterable[Block],
    weights: Sequence[float],
    slot_blocks: Mapping[str, Block],
    view: ServerView,
    config: Config,
) -> FoldedBlock:
    """Return the stepped model and slots, each rounded once, where Delta = sum_k n_k w_k / sum_k n_k - w."""
    start = start_block.astype(np.float64)
    delta = unrounded_mean(update_blocks, weights) - start
    slots = {name: block.astype(np.float64) for name, block in slot_blocks.items()}
    result, after = stepped(start, delta, slots, config)
    return FoldedBlock(result=to_float32(result), slots={name: to_float32(slot) for name, slot in after.items()})


METHOD = Method(
    name="fedopt",
    paper="Reddi et al., ICLR 2021, https://arxiv.org/abs/2003.00295",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(ServerSlots(first_values=server_slots, fold=slot_fold),),
    neutral={"server_opt": "sgdm", "server_lr": 1.0, "beta1": 0.0},
)
