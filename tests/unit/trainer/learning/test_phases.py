"""Phases of a training: which parameters, statistics and modes each of them changes, and for how many steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.learning.attacks import ImageAttack
from fedplcc.trainer.learning.batches import batches
from fedplcc.trainer.learning.phases import planned_phases, training_of
from fedplcc.trainer.models import head_names, personal_names, state_arrays
from tests.unit.trainer.builders import a_config, a_model, digest, some_data, train


def a_run(**hyper: Any) -> RunConfig:
    return a_config("fedrep", model={"name": "resnet10"}, method={"head_epochs": 2, **hyper})


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    return {name for name, array in before.items() if array.tobytes() != after[name].tobytes()}


def test_the_head_is_trained_for_its_passes_and_then_the_base_for_as_long_as_training_says() -> None:
    """12 samples in batches of 4: two passes are six steps, then three local steps."""
    config, states = a_run(), []
    model = a_model(config)
    heads = set(head_names(model))
    _, result = train(config, model, on_progress=lambda step, steps: states.append((step, steps, state_arrays(model))))
    assert result.num_steps == 9
    assert [(step, steps) for step, steps, _ in states] == [(step, 9) for step in range(10)]
    assert changed(states[0][2], states[6][2]) == heads
    base = changed(states[6][2], states[9][2])
    assert base
    assert not base & heads
    assert {name for name in states[0][2] if "running_mean" in name} <= base, "the base is in training mode again"
    assert all(param.requires_grad for param in model.parameters())
    assert result.client_state is not None
    assert set(result.client_state) == heads
    assert all(np.array_equal(result.client_state[name], states[9][2][name]) for name in heads)


def test_the_phases_are_the_loops_of_the_paper() -> None:
    """The same steps by plain torch, on a model without BatchNorm: an optimiser of its own for each part."""
    config = a_config("fedrep", method={"head_epochs": 2})
    model, plain, data = a_model(config), a_model(config), some_data(config=config)
    result = train(config, model)[1]
    plan = batches(len(data), 4, seed=config.run.seed, client_id="a", round=1)
    losses = []
    for part, steps in (("head", 6), ("base", 3)):
        heads = head_names(plain)
        params = [param for name, param in plain.named_parameters() if (name in heads) == (part == "head")]
        training = config.training
        optimiser = torch.optim.SGD(
            params, training.learning_rate, training.momentum, weight_decay=training.weight_decay
        )
        for _ in range(steps):
            x, labels = data.batch(next(plan))
            loss = nn.functional.cross_entropy(plain(x), labels)
            plain.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    assert result.losses["ce"] == pytest.approx(np.mean(losses), rel=1e-5)
    for name, array in state_arrays(plain).items():
        np.testing.assert_allclose(state_arrays(model)[name], array, rtol=1e-4, atol=1e-6)


def test_batch_norm_that_a_client_keeps_is_trained_with_all_else() -> None:
    plain, config = a_config(model={"name": "resnet10"}), a_run(personal="batch_norm")
    model, other = a_model(plain), a_model(config)
    train(plain, model)
    result = train(config, other)[1]
    assert digest(model) == digest(other)
    assert result.client_state is not None
    assert set(result.client_state) == set(personal_names(other, "batch_norm", "resnet10"))
    assert {name.rpartition(".")[2] for name in result.client_state} == {
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_the_part_that_is_not_trained_is_in_evaluation_mode_and_an_attack_leaves_it_there() -> None:
    config = a_run()
    model, data = a_model(config), some_data(config=config)
    x, labels = data.batch(torch.arange(4))
    for phase in planned_phases(model, config, len(data)):
        with training_of(model, phase):
            before = {name: part.training for name, part in model.named_modules()}
            assert before["classifier"] == (phase.trains == "head")
            assert before["bn1" if "bn1" in before else ""] == (phase.trains == "base")
            ImageAttack.named("fgsm", 0.1, data).changed(model, x, labels)
            assert {name: part.training for name, part in model.named_modules()} == before
            trains = {name for name, param in model.named_parameters() if param.requires_grad}
            assert trains == set(phase.params)


class Bare(nn.Module):
    """A base without parameters."""

    feature_dim = 3 * 16 * 16

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(self.feature_dim, 3)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)


def test_a_part_without_parameters_and_a_client_without_anything_to_keep_are_refused() -> None:
    config = a_config("fedrep")
    with pytest.raises(InvalidModel, match="no parameter of its base"):
        planned_phases(Bare(), config, 12)
    with pytest.raises(InvalidModel, match="nothing beside its head"):
        personal_names(Bare(), "head", "bare")
    with pytest.raises(InvalidModel, match="no BatchNorm layer"):
        personal_names(a_model(config), "batch_norm", "cnn4")
