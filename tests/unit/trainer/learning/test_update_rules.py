"""The rules by which SGD, Adam and AdamW change parameters are torch's, and cost no import of its compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from fedplcc.trainer.learning.update_rules import Adam, Sgd, UpdateRule
from tests.support import ROOT

STEPS = 6
RULES: dict[str, tuple[Callable[[Sequence[Tensor]], UpdateRule], Callable[[Sequence[Tensor]], torch.optim.Optimizer]]]
RULES = {
    "sgd": (
        lambda params: Sgd(params, 0.1, 0.0, momentum=0.0),
        lambda params: torch.optim.SGD(params, 0.1, fused=True),
    ),
    "sgd with momentum": (
        lambda params: Sgd(params, 0.1, 5e-4, momentum=0.9),
        lambda params: torch.optim.SGD(params, 0.1, 0.9, weight_decay=5e-4, fused=True),
    ),
    "adamw": (
        lambda params: Adam(params, 0.01, 0.1, decoupled=True),
        lambda params: torch.optim.AdamW(params, 0.01, weight_decay=0.1, fused=True),
    ),
    "adam": (lambda params: Adam(params, 0.01), lambda params: torch.optim.Adam(params, 0.01)),
}


def trained(begin: Callable[[Sequence[Tensor]], UpdateRule | torch.optim.Optimizer]) -> list[nn.Parameter]:
    """Parameters after some steps by gradients drawn from a seed; the last one never has a gradient."""
    draws = torch.Generator().manual_seed(0)
    kernel = torch.randn(4, 3, 5, 5, generator=draws).to(memory_format=torch.channels_last)
    params = [nn.Parameter(kernel), nn.Parameter(torch.randn(7, generator=draws)), nn.Parameter(torch.ones(2))]
    rule = begin(params)
    for _ in range(STEPS):
        rule.zero_grad()
        for param in params[:2]:
            param.grad = torch.randn(param.shape, generator=draws)
        rule.step()
    return params


@pytest.mark.parametrize("name", RULES)
def test_parameters_are_those_of_torchs_class_to_the_bit(name: str) -> None:
    ours, torchs = (trained(begin) for begin in RULES[name])
    assert all(torch.equal(mine, other) for mine, other in zip(ours, torchs, strict=True))
    assert not torch.equal(ours[1], trained(lambda params: Sgd(params, 0.0, 0.0, momentum=0.0))[1])
    assert ours[2].tolist() == [1, 1]


def trained_late(begin: Callable[[Sequence[Tensor]], UpdateRule | torch.optim.Optimizer]) -> list[nn.Parameter]:
    """Two parameters after some steps; the second has its first gradient in the third one."""
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
    rule = begin(params)
    for step in range(STEPS):
        for param in params[: 1 if step < 2 else 2]:
            param.grad = torch.full((2,), 0.5 + step)
        rule.step()
    return params


def test_a_parameter_may_have_its_first_gradient_later_than_others() -> None:
    """A model with a branch that is not taken in every batch; torch's fused class fails there, its plain one does not."""
    ours = trained_late(RULES["sgd with momentum"][0])
    torchs = trained_late(lambda params: torch.optim.SGD(params, 0.1, 0.9, weight_decay=5e-4))
    for mine, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine, other)


def test_training_does_not_import_torchs_compiler() -> None:
    """It takes a second of processor time and 150 MB in each process."""
    program = """
import sys
from tests.unit.trainer.builders import a_config, a_model, train
from fedplcc.trainer.models import build_model, load_arrays, state_arrays
run = a_config(model={"name": "resnet10"})
model = build_model(run.model, 3, 16, run.run.seed, with_weights=False)
load_arrays(model, state_arrays(a_model(run)))
train(run, model)
for training in ({}, {"optimizer": "adamw"}, {"precision": "float16"}, {"clip_norm": 1.0, "augment": ["flip"]}):
    train(a_config("fedplcc", training={"learning_rate": 0.001, **training}))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"


def test_a_step_without_any_gradient_changes_nothing() -> None:
    param = nn.Parameter(torch.ones(2))
    for begin, _ in RULES.values():
        begin([param]).step()
    assert param.tolist() == [1, 1]
