"""Learning rate of a round: `[training] learning_rate` under its schedule. Pure.

With W warm-up rounds and the rate a of `learning_rate`, round r has

    r <= W              a r / (W + 1)
    constant            a
    step                a f^floor(t / k)                t = r - 1 - W, f = step_factor, k = step_rounds
    cosine              a (1 + cos(pi t / T)) / 2       T = schedule_rounds - W; t at most T - 1, so it is never zero

Cosine: Loshchilov and Hutter, "SGDR", ICLR 2017, https://arxiv.org/abs/1608.03983, section 3: one period without restarts,
with a lowest rate of 0.
"""

from __future__ import annotations

import math

from fedplcc.shared.config.tables.training import TrainingSection

STEP_FACTOR = 0.1
"""Factor of each step if none is set."""
SMALLEST = 1e-30
"""Lowest rate; below it the weights stay the same bits anyway, and hundreds of steps would end at zero."""


def learning_rate(training: TrainingSection, round_number: int, total_rounds: int) -> float:
    """Return the learning rate of a round, in (0, `training.learning_rate`].

    Args:
        training: The run's `[training]`.
        round_number: The round, from 1.
        total_rounds: Rounds of the run, over which a cosine falls if `schedule_rounds` is not set; more than the warm-up's.
    """
    whole, warm_up = training.learning_rate, training.warmup_rounds
    if round_number <= warm_up:
        return whole * round_number / (warm_up + 1)
    past = round_number - 1 - warm_up
    if training.schedule == "step":
        assert training.step_rounds is not None, "the section refuses steps without a length"
        factor = STEP_FACTOR if training.step_factor is None else training.step_factor
        return max(whole * factor ** (past // training.step_rounds), min(whole, SMALLEST))
    if training.schedule == "cosine":
        length = (total_rounds if training.schedule_rounds is None else training.schedule_rounds) - warm_up
        return whole * (1 + math.cos(math.pi * min(past, length - 1) / length)) / 2
    return whole
