"""Changes of low rank: the first model is the backbone's, means of changes are those of layers, A is the layer's."""

from __future__ import annotations

import copy
import hashlib

import pytest
import torch
from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models.low_rank import add_low_rank, merge_low_rank


def a_backbone() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 12, 3), nn.Conv2d(12, 12, 3, groups=12), nn.Conv2d(12, 16, 1), nn.Flatten(), nn.Linear(256, 10)
        ).double()


def changed() -> tuple[nn.Sequential, list[nn.Parameter]]:
    backbone = a_backbone()
    add_low_rank(backbone, "tiny")
    return backbone.double(), [param for name, param in backbone.named_parameters() if name.endswith(".factor")]


IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()


def test_it_begins_as_the_layers_are_and_changes_those_that_mix_channels() -> None:
    backbone, factors = changed()
    assert [param.shape for param in factors] == [(12, 8), (16, 8), (10, 8)]
    torch.testing.assert_close(backbone(IMAGES), a_backbone()(IMAGES))


def test_the_mean_of_changes_is_that_of_layers_and_what_is_merged_computes_the_same() -> None:
    weights, drawn = list[list[Tensor]](), list[list[nn.Parameter]]()
    for number in (1, 2):
        backbone, factors = changed()
        with torch.no_grad():
            for factor in factors:
                factor.normal_(generator=torch.Generator().manual_seed(number))
        weights.append([layer.weight for layer in backbone if isinstance(layer, nn.Conv2d | nn.Linear)])
        drawn.append(factors)
    mean, factors = changed()
    with torch.no_grad():
        for factor, one, other in zip(factors, *drawn, strict=True):
            factor.copy_((one + other) / 2)
    layers = [layer for layer in mean if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, first, second in zip(layers, *weights, strict=True):
        torch.testing.assert_close(layer.weight, (first + second) / 2)
    expected = mean(IMAGES)
    merge_low_rank(mean)
    assert mean.state_dict().keys() == a_backbone().state_dict().keys()
    torch.testing.assert_close(mean(IMAGES), expected)
    plain = a_backbone()
    plain.load_state_dict(copy.deepcopy(mean.state_dict()))
    torch.testing.assert_close(plain(IMAGES), expected)


def test_the_fixed_factor_is_of_the_layer_and_the_same_on_every_machine() -> None:
    first, again = ([value for _, value in sorted(changed()[0].named_buffers())] for _ in range(2))
    assert all(map(torch.equal, first, again))
    assert len({value.abs().max().item() for value in first}) == 3
    digest = hashlib.sha256(b"".join(value.sign().float().numpy().tobytes() for value in first)).hexdigest()
    assert digest.startswith("84b0acb704a482c6")


def test_a_backbone_without_such_layers_is_refused() -> None:
    with pytest.raises(InvalidModel, match=r'no layer for training\.train = "lora"'):
        add_low_rank(nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Flatten()), "tiny")
