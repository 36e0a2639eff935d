"""A bare Sequential as a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models.contract import checked, head_names
from fedplcc.trainer.models.sequential import wrapped


def a_sequential(*last: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 5), nn.ReLU(), *last
    )


def test_its_last_layer_is_the_classifier_and_the_rest_gives_the_features() -> None:
    plain = a_sequential(nn.Linear(5, 3))
    model: Any = checked(wrapped(plain), "mine:net", 3, 16)
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(model(x), plain(x))
    assert torch.equal(model.features(x), plain[:-1](x))
    assert model.feature_dim == 5
    assert head_names(model) == ("classifier.weight", "classifier.bias")


def test_maps_are_flattened() -> None:
    model: Any = checked(wrapped(nn.Sequential(nn.Conv2d(3, 2, 8, stride=8), nn.Linear(8, 3))), "mine:net", 3, 16)
    assert model.features(torch.zeros(2, 3, 16, 16)).shape == (2, 8)


@pytest.mark.parametrize("plain", [a_sequential(), nn.Sequential(), a_sequential(nn.Linear(5, 3), nn.Softmax(-1))])
def test_one_that_ends_otherwise_is_refused_by_the_layer_that_it_ends_in(plain: nn.Sequential) -> None:
    last = type(plain[-1]).__name__ if len(plain) else "nothing"
    with pytest.raises(InvalidModel, match=f"its last layer is Linear, the classifier; it ends in {last}"):
        checked(wrapped(plain), "mine:net", 3, 16)


def test_a_class_of_ones_own_stays_as_it_is() -> None:
    class Own(nn.Sequential):
        """Has features of its own."""

    model = Own(nn.Flatten(), nn.Linear(3, 3))
    assert wrapped(model) is model
