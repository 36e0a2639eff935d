"""Mean of the models at the ends of a pass's stages, where `stream.epoch_model` is "stage_mean".

The result of a pass's last round is the mean; the next round starts from the newest model. In the rounds before, the mean so
far is part of the server's state.
"""

from __future__ import annotations

from dataclasses import replace

from fedplcc.aggregator.computation.model_means import mean_model
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.shared.types import MODEL

STAGE_MEAN = "stage_mean"
"""Server state: the mean of the models of the pass's stages that have ended."""


def with_stage_mean(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Take the round's model into the mean of its pass's stage models, which the pass's last round comes to."""
    stream, current = of.config.stream, of.run.current_round
    if stream.epoch_model != "stage_mean" or not of.method.shares_model(of.hyper):
        return made
    assert current is not None
    place, before = stream.place(current.number), of.run.server_state.get(STAGE_MEAN)
    assert place is not None
    if not stream.ends_stage(current.number):
        kept = {} if before is None else {STAGE_MEAN: before}
        return replace(made, server_state={**made.server_state, **kept})
    mean = replace(made.model, role=STAGE_MEAN)
    if before is not None:
        of_stages = [(before, place.stage - 1.0), (made.model, 1.0)]
        mean = mean_model(STAGE_MEAN, of_stages, of.table, of.blobs, of.block_elements)
    if place.stage < stream.stages:
        return replace(made, server_state={**made.server_state, STAGE_MEAN: mean})
    return replace(made, model=replace(mean, role=MODEL), start=made.start or made.model)
