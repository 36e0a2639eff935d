"""The learning rate of a round agrees with torch's schedulers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, StepLR

from fedplcc.shared.config.learning_rate import learning_rate
from fedplcc.shared.config.tables.training import TrainingSection

ROUNDS = 20


def training(**values: Any) -> TrainingSection:
    return TrainingSection.model_validate({"learning_rate": 0.4, **values})


def rates(rounds: int = ROUNDS, **values: Any) -> list[float]:
    section = training(**values)
    return [learning_rate(section, number, rounds) for number in range(1, rounds + 1)]


def of_torch(make: Any, rounds: int = ROUNDS) -> list[float]:
    """The rates of one of torch's schedulers from 0.4 on, a step a round."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.4)
    scheduler: LRScheduler = make(optimizer)
    found = []
    for _ in range(rounds):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return found


def test_the_rate_is_constant_if_nothing_else_is_said() -> None:
    assert rates() == [0.4] * ROUNDS


def test_a_cosine_is_torchs() -> None:
    assert rates(schedule="cosine") == pytest.approx(of_torch(lambda each: CosineAnnealingLR(each, ROUNDS)))


def test_steps_are_torchs() -> None:
    assert rates(schedule="step", step_rounds=6) == pytest.approx(of_torch(lambda each: StepLR(each, 6, 0.1)))
    halves = rates(schedule="step", step_rounds=1, step_factor=0.5)
    assert halves == pytest.approx(of_torch(lambda each: StepLR(each, 1, 0.5)))


def test_a_warm_up_is_torchs_linear_rise_and_the_schedule_begins_after_it() -> None:
    warm = rates(warmup_rounds=4)
    assert warm == pytest.approx(of_torch(lambda each: LinearLR(each, 1 / 5, 1, 4)))
    assert warm[:5] == pytest.approx([0.08, 0.16, 0.24, 0.32, 0.4])
    whole = rates(schedule="cosine", warmup_rounds=4)
    assert whole[:4] == warm[:4]
    assert whole[4:] == pytest.approx(of_torch(lambda each: CosineAnnealingLR(each, 16), 16))
    assert rates(schedule="step", step_rounds=6, warmup_rounds=4)[4:] == pytest.approx(
        of_torch(lambda each: StepLR(each, 6, 0.1), 16)
    )


def test_a_cosine_of_its_own_length_does_not_look_at_the_rounds_of_the_run() -> None:
    short = rates(10, schedule="cosine", schedule_rounds=12)
    long = rates(15, schedule="cosine", schedule_rounds=12)
    assert long[:10] == short
    assert long[12:] == [long[11]] * 3, "later rounds keep the last rate"


@given(
    number=st.integers(1, 400),
    rounds=st.integers(400, 500),
    warm_up=st.integers(0, 399),
    schedule=st.sampled_from(
        [
            {"schedule": "constant"},
            {"schedule": "cosine"},
            {"schedule": "cosine", "schedule_rounds": 400},
            {"schedule": "step", "step_rounds": 1, "step_factor": 0.001},
            {"schedule": "step", "step_rounds": 7},
        ]
    ),
)
def test_a_rate_is_above_zero_and_never_above_the_whole_one(
    number: int, rounds: int, warm_up: int, schedule: dict[str, Any]
) -> None:
    section = training(warmup_rounds=warm_up, **schedule)
    rate = learning_rate(section, number, rounds)
    assert 0 < rate <= 0.4
    after = learning_rate(section, number + 1, rounds)
    assert after > rate if number <= warm_up else after <= rate
