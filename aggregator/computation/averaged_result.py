"""Exponential average of the rounds' models, where `method.global_average` is "ema".

A_1 = w_1 and A_t = d A_(t-1) + (1 - d) w_t, with w_t the model that round t came to and d `method.average_decay`
(docs/algorithms.md, rule 1.18). The result of round t is A_t; the next round starts from w_t.
"""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.computation.model_means import mean_model
from aggregator.store.blobs.blob_store import BlobStore
from shared.methods.base import MethodConfig
from shared.tensors import TensorTable
from shared.types import MODEL, START, BlobRef


def averages(config: MethodConfig) -> bool:
    """Whether the result of a round is an average over rounds."""
    return config.global_average == "ema" and config.average_decay > 0


def with_average(
    model: BlobRef,
    made: Mapping[str, BlobRef],
    before: BlobRef | None,
    decay: float,
    table: TensorTable,
    blobs: BlobStore,
    block_elements: int,
) -> tuple[BlobRef, dict[str, BlobRef]]:
    """Return a round's result, the average, and what else it made, with the model that the next round starts from.

    Args:
        model: The model that the round came to.
        made: The round's server state, and under START the model that the next round starts from, if another.
        before: The result of the round before; None in round 1.
        decay: Its weight, d.
        table: Layout of the model.
        blobs: Where the models are, and the average goes.
        block_elements: Elements of a model that are read at a time.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
    """
    if before is None:
        return model, dict(made)
    average = mean_model(MODEL, [(before, decay), (model, 1.0 - decay)], table, blobs, block_elements)
    return average, {START: model, **made}
