from itertools import chain, islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.run import TrainingSection
from fedplcc.trainer.learning.batches import batches, batches_per_pass, num_steps

WHO = {"seed": 0, "client_id": "a", "round": 1}


def first(count: int, num_examples: int = 12, batch_size: int = 4, **who: Any) -> list[list[int]]:
    return [batch.tolist() for batch in islice(batches(num_examples, batch_size, **{**WHO, **who}), count)]


@given(st.integers(2, 200), st.integers(2, 50))
def test_a_pass_holds_every_sample_once_in_batches_that_batch_normalisation_can_take(
    num_examples: int, batch_size: int
) -> None:
    passes = 2
    plan = first(passes * batches_per_pass(num_examples, batch_size), num_examples, batch_size)
    size = len(plan) // passes
    for number in range(passes):
        drawn = plan[number * size : (number + 1) * size]
        assert sorted(chain(*drawn)) == list(range(num_examples))
        assert all(len(batch) == batch_size for batch in drawn[:-1])
        assert 2 <= len(drawn[-1]) <= batch_size + 1


def test_300_samples_at_batch_size_32_are_exactly_ten_steps() -> None:
    assert batches_per_pass(300, 32) == 10
    assert [len(batch) for batch in first(10, 300, 32)] == [32] * 9 + [12]


def test_one_sample_left_over_joins_the_batch_before_it() -> None:
    assert [len(batch) for batch in first(3, 9, 4)] == [4, 5, 4]
    assert [len(batch) for batch in first(2, 33, 32)] == [33, 33]


def test_a_single_sample_is_taken_twice() -> None:
    assert first(2, 1, 32) == [[0, 0], [0, 0]]


def test_passes_are_different_permutations() -> None:
    plan = first(6)
    assert list(chain(*plan[:3])) != list(chain(*plan[3:]))


def test_the_order_is_a_function_of_seed_client_and_round() -> None:
    plan = first(3)
    torch.manual_seed(99)
    assert first(3) == plan
    for other in ({"seed": 1}, {"client_id": "b"}, {"round": 2}):
        assert first(3, **other) != plan


@pytest.mark.parametrize(
    ("training", "num_examples", "steps"),
    [({"local_steps": 7}, 300, 7), ({"local_epochs": 3}, 300, 30), ({"local_epochs": 2}, 1, 2), ({}, 1000, 10)],
)
def test_a_round_lasts_steps_or_passes(training: dict[str, int], num_examples: int, steps: int) -> None:
    assert num_steps(TrainingSection.model_validate(training), num_examples) == steps
