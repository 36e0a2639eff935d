"""The optimiser of a round, and the precision of its operations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedplcc.shared.config.tables.training import TrainingSection
from fedplcc.shared.methods.fedavg import METHOD as FEDAVG
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.step import ClientStep, Term
from fedplcc.trainer.learning.divergence import TrainingDiverged
from fedplcc.trainer.learning.optimiser import Optimiser
from fedplcc.trainer.models import state_arrays
from tests.unit.trainer.builders import CPU, a_config, some_data, train
from tests.unit.trainer.learning.test_training import Linear, bytes_of

STEPS = 8


def test_two_steps_of_adamw_are_the_papers() -> None:
    """Loshchilov and Hutter, algorithm 2, on the mean cross-entropy; the decay is apart from the gradient."""
    settings = {"optimizer": "adamw", "learning_rate": 0.02, "weight_decay": 0.1}
    config = a_config(training={"local_steps": 2, "batch_size": 12, **settings})
    data, model = some_data(12, config), Linear()
    weight = model.classifier.weight.detach().numpy().astype(np.float64)
    x, labels = data.batch(torch.arange(12))
    z, one_hot = model.features(x).numpy().astype(np.float64), np.eye(3)[labels.numpy()]
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step in (1, 2):
        exponentials = np.exp(z @ weight.T)
        shares = exponentials / exponentials.sum(axis=1, keepdims=True)
        gradient = (shares - one_hot).T @ z / 12
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        change = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        weight = weight - 0.02 * (change + 0.1 * weight)
    train(config, model, data)
    np.testing.assert_allclose(model.classifier.weight.detach().numpy(), weight, rtol=1e-4, atol=1e-6)


def test_a_round_trains_with_the_rate_of_its_number() -> None:
    scheduled = {"schedule": "step", "step_rounds": 1, "step_factor": 0.5, "learning_rate": 0.4}
    for number, rate in ((1, 0.4), (2, 0.2), (3, 0.1)):
        plain = a_config(training={"learning_rate": rate})
        assert bytes_of(a_config(training=scheduled), round=number) == bytes_of(plain, round=number)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(("precision", "difference"), [("bfloat16", 3e-2), ("float16", 3e-3)])
def test_a_lower_precision_is_near_the_full_one_and_leaves_float32(
    precision: str, difference: float, optimizer: str
) -> None:
    settings = {"optimizer": optimizer, "learning_rate": 0.001, "clip_norm": 5.0}
    plain, expected = train(a_config(training=settings))
    model, result = train(a_config(training={**settings, "precision": precision}))
    assert {array.dtype for array in state_arrays(model).values()} <= {np.dtype(np.float32), np.dtype(np.int64)}
    assert result.losses["ce"] != expected.losses["ce"]
    assert result.losses["ce"] == pytest.approx(expected.losses["ce"], rel=difference)
    for name, value in state_arrays(plain).items():
        np.testing.assert_allclose(state_arrays(model)[name], value, atol=0.02, err_msg=name)


def test_bfloat16_has_a_gradient_of_weights_that_meet_the_margin_alone() -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        convolution = nn.Conv2d(20, 30, 3, 2, padding=1, bias=False)
        maps = torch.randn(8, 20, 1, 1)
        del [torch.full((number,), 1e30) for number in range(1000, 40_000, 100)][:]  # what memory held before
        with an_optimiser(next(convolution.parameters()), precision="bfloat16").forward():
            loss = convolution(maps).float().square().mean()
        found = torch.autograd.grad(loss, convolution.weight)[0]
        expected = torch.autograd.grad(convolution(maps).square().mean(), convolution.weight)[0]
        torch.testing.assert_close(found, expected, rtol=0.05, atol=float(expected.abs().max()) / 50)


def an_optimiser(weight: Tensor, **training: Any) -> Optimiser:
    section = TrainingSection.model_validate({"learning_rate": 0.1, "momentum": 0, "weight_decay": 0, **training})
    return Optimiser([weight], section, learning_rate=0.1, device=CPU)


def test_small_gradients_count_in_float16() -> None:
    """A gradient of 1e-8 is zero in float16; the scale of the loss keeps it."""
    weight = nn.Parameter(torch.ones(1))
    halved = weight.half()
    an_optimiser(weight, precision="float16").step((halved * torch.tensor(1e-7).half()).sum().float() * 0.1)
    assert weight.grad is not None
    assert weight.grad.item() > 0


def test_a_step_that_overflows_changes_nothing_and_halves_the_scale() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimiser = an_optimiser(weight, precision="float16", clip_norm=1.0)
    assert optimiser.step(weight.half().float().sum() * 1e3) is None
    assert (weight.item(), optimiser.num_skipped) == (1.0, 1)
    for _ in range(STEPS):
        optimiser.step(weight.half().float().sum() * 1e3)
    assert weight.item() < 1.0
    assert optimiser.num_skipped < STEPS


def _steep(step: ClientStep, config: Any) -> dict[str, Term]:
    return {"ce": Term(step.task_loss), "steep": Term((step.logits_BM * 1e30).sum())}


def test_a_round_without_any_finite_gradient_in_float16_is_a_divergence() -> None:
    steep: Method = replace(FEDAVG, client_loss=_steep)
    with pytest.raises(TrainingDiverged, match="no step had a finite gradient in float16"):
        train(a_config(training={"precision": "float16"}), method=steep)
