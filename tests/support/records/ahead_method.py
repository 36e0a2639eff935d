"""Ahead: a method whose next round starts ahead of its result, by all that the mean has moved a client so far.

Not a published one: it has what FedOpt has not, another start and a fold that reads the number of eligible clients. It
cannot be FedAvg, which has no start of its own. https://example.org
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.maths import to_float32, unrounded_mean
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.part import always
from fedplcc.shared.methods.parts.slots import FoldedBlock, ServerSlots, ServerView
from fedplcc.shared.methods.step import ClientStep, LossTerms


class Config(MethodConfig):
    """It has no hyper-parameters of its own."""


def client_loss(step: ClientStep, config: Config) -> LossTerms:
    """Return FedAvg's terms."""
    return fedavg.client_loss(step, config)


def server_slots(config: Config) -> Mapping[str, float]:
    """Return the way so far."""
    return {"way": 0.0}


def slot_fold(
    start_block: Block,
    update_blocks: Iterable[Block],
    weights: Sequence[float],
    slot_blocks: Mapping[str, Block],
    view: ServerView,
    config: Config,
) -> FoldedBlock:
    """Return the mean, the way with its new part, and the mean that many steps ahead."""
    mean = unrounded_mean(update_blocks, weights)
    way = slot_blocks["way"].astype(np.float64) + (mean - start_block) / view.num_eligible
    return FoldedBlock(result=to_float32(mean), slots={"way": to_float32(way)}, start=to_float32(mean + way))


METHOD = Method(
    name="ahead",
    paper="None, https://example.org",
    config=Config,
    client_loss=client_loss,
    fold=fedavg.fold,
    parts=(ServerSlots(first_values=server_slots, fold=slot_fold, has_start=always),),
)
