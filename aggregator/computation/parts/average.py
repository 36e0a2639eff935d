"""Exponential average of the rounds' models, where `method.global_average` is "ema".

A_1 = w_1 and A_t = d A_(t-1) + (1 - d) w_t, with w_t the model that round t came to and d `method.average_decay`
(docs/algorithms.md, rule 1.18). The result of round t is A_t; the next round starts from w_t.
"""

from __future__ import annotations

from dataclasses import replace

from fedplcc.aggregator.computation.model_means import mean_model
from fedplcc.aggregator.computation.round_inputs import RoundInputs, RoundMade
from fedplcc.shared.types import MODEL


def with_average(made: RoundMade, of: RoundInputs) -> RoundMade:
    """Take the round's model into the average over rounds, which is the result; round 1's average is its model."""
    decay, current = of.hyper.average_decay, of.run.current_round
    if of.hyper.global_average != "ema" or not decay or not of.method.shares_model(of.hyper):
        return made
    assert current is not None
    if current.number == 1:
        return made
    assert of.run.model is not None
    models = [(of.run.model, decay), (made.model, 1.0 - decay)]
    average = mean_model(MODEL, models, of.table, of.blobs, of.block_elements)
    return replace(made, model=average, start=made.start or made.model)
