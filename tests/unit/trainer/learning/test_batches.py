from itertools import chain, islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.config.run import TrainingSection
from fedplcc.trainer.learning.batches import balanced_batches, batches, batches_per_pass, num_steps

WHO: dict[str, Any] = {"seed": 0, "client_id": "a", "round": 1}


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


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(2, 20), st.integers(0, 3))
def test_balanced_batches_have_each_class_equally_often_but_for_one_image(
    counts: list[int], batch_size: int, seed: int
) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)) * 2, torch.tensor(counts))
    num_batches = 3 * batches_per_pass(len(labels), batch_size)
    plan = list(islice(balanced_batches(labels, batch_size, **{**WHO, "seed": seed}), num_batches))
    of_same_size = first(num_batches, len(labels), batch_size)
    assert [len(numbers) for numbers in plan] == [len(numbers) for numbers in of_same_size]
    if len(labels) > 1:
        for numbers in plan:
            drawn = torch.bincount(labels[numbers], minlength=2 * len(counts))[::2]
            assert drawn.max() - drawn.min() <= 1
    again = islice(balanced_batches(labels, batch_size, **{**WHO, "seed": seed}), num_batches)
    assert all(torch.equal(one, other) for one, other in zip(plan, again, strict=True))
    in_order = torch.cat(plan)
    for label, number in enumerate(counts):
        of_class = in_order[labels[in_order] == 2 * label]
        assert set(of_class[:number].tolist()) == set((labels == 2 * label).nonzero()[: len(of_class), 0].tolist()) or (
            len(of_class) < number and len(of_class.unique()) == len(of_class)
        )


def test_balanced_batches_differ_by_seed_client_and_round() -> None:
    labels = torch.tensor([0] * 30 + [1] * 3)

    def drawn(**who: Any) -> list[int]:
        return torch.cat(list(islice(balanced_batches(labels, 8, **{**WHO, **who}), 4))).tolist()

    plans = [drawn(), drawn(seed=1), drawn(client_id="b"), drawn(round=2)]
    assert len({tuple(plan) for plan in plans}) == len(plans)
