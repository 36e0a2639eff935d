"""Mean of the models at the ends of a pass's stages, where `stream.epoch_model` is "stage_mean".

The result of a pass's last round is the mean; the next round starts from the newest model. In the rounds before, the mean so
far is part of the server's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aggregator.computation.model_means import mean_model
from aggregator.store.blobs.blob_store import BlobStore
from shared.config.stream import StreamSection
from shared.tensors import TensorTable
from shared.types import MODEL, START, BlobRef

STAGE_MEAN = "stage_mean"
"""Server state: the mean of the models of the pass's stages that have ended."""


def with_stage_mean(
    model: BlobRef,
    made: Mapping[str, BlobRef],
    before: BlobRef | None,
    number: int,
    stream: StreamSection,
    table: TensorTable,
    blobs: BlobStore,
    block_elements: int,
) -> tuple[BlobRef, dict[str, BlobRef]]:
    """Return a round's result, and what else it made, with the mean of its pass's stage models.

    Args:
        model: The model that the round came to.
        made: The round's server state, and under START the model that the next round starts from, if another.
        before: The mean of the pass's stages that have ended; None in the first stage.
        number: The round, from 1.
        stream: The run's stages.
        table: Layout of the model.
        blobs: Where the models are, and the mean goes.
        block_elements: Elements of a model that are read at a time.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
    """
    place = stream.place(number)
    assert place is not None
    if not stream.ends_stage(number):
        return model, {**made, **({} if before is None else {STAGE_MEAN: before})}
    mean = replace(model, role=STAGE_MEAN)
    if before is not None:
        of_stages = [(before, place.stage - 1.0), (model, 1.0)]
        mean = mean_model(STAGE_MEAN, of_stages, table, blobs, block_elements)
    if place.stage < stream.stages:
        return model, {**made, STAGE_MEAN: mean}
    return replace(mean, role=MODEL), {START: model, **made}
