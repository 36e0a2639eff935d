"""Low-rank changes of a backbone's layers: W + B A, of which B is trained and travels (docs/algorithms.md, rule 24.4).

A is the same at every site, so that the mean of clients' B gives the mean of their layers, and in every run, so that one
may begin with the model of another. It is signs, on any machine alike, as normal numbers need not be; `peft` draws them
from the process's generator. It stays as it is: a model that is fetched depends on it. PyTorch's parametrisations put the
sum in the place of the weight.

Its accuracy is known of one small trial, so no recipe has it: PACS at 64 pixels, 20 images of a class at each site, six
rounds, seed 0: 58.9 %, worst domain 48.0, at a learning rate of 0.01, where a trained head has 57.9 and 46.5 at 0.05. At
0.05 it ends at chance, as `last:2` does there.

Shape legend: O outputs, I inputs times the size of the kernel, R rank.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from fedplcc.shared.errors import InvalidModel

RANK = 8


class LowRank(nn.Module):
    """A trained B under a fixed A; at first B is zero, and the layer as it was."""

    signs_RI: Tensor

    def __init__(self, weight: Tensor, name: str) -> None:
        """Prepare it for a weight.

        Args:
            weight: `[O, ...]`.
        """
        super().__init__()
        num_outputs, num_inputs = len(weight), weight[0].numel()
        self.factor = nn.Parameter(torch.zeros(num_outputs, RANK))
        self.register_buffer("signs_RI", _signs(RANK, num_inputs, name) / num_inputs**0.5, persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight with the change."""
        return weight + (self.factor @ self.signs_RI).view_as(weight)


def _signs(num_rows: int, num_columns: int, name: str) -> Tensor:
    """Return -1 and 1 in float32 by the bits of SHAKE-256 of a name."""
    num_bits = num_rows * num_columns
    drawn = np.frombuffer(hashlib.shake_256(name.encode()).digest(-(-num_bits // 8)), np.uint8)
    signs = np.unpackbits(drawn)[:num_bits].astype(np.float32) * 2 - 1
    return torch.from_numpy(signs.reshape(num_rows, num_columns))


def add_low_rank(backbone: nn.Module, name: str) -> frozenset[nn.Module]:
    """Put a change of low rank into each linear layer and each convolution that mixes channels; returns these changes.

    Args:
        backbone: A model without its classifier.

    Raises:
        InvalidModel: It has no such layer with more than `RANK` inputs and outputs.
    """
    layers = {path: layer for path, layer in backbone.named_modules() if _takes(layer)}
    if not layers:
        raise InvalidModel(f'model {name!r} has no layer for training.train = "lora"; choose "norm" or "all"')
    changes = set[nn.Module]()
    for path, layer in layers.items():
        change = LowRank(layer.weight, f"lora 0 {path}")
        # What it checks would run the layer's weight through the change, which the outline of a model cannot.
        parametrize.register_parametrization(layer, "weight", change, unsafe=True)
        changes.add(change)
    return frozenset(changes)


def _takes(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Linear | nn.Conv2d) or getattr(layer, "groups", 1) != 1:
        return False
    return min(len(layer.weight), layer.weight[0].numel()) > RANK


def merge_low_rank(model: nn.Module) -> None:
    """Put the changed weights in the place of weights and changes, in place: the model has the names that it had without."""
    for layer in model.modules():
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
