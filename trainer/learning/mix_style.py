"""MixStyle: early features of an image get channel statistics that are part its own, part another image's.

Zhou, Yang, Qiao, Xiang, "Domain Generalization with MixStyle", ICLR 2021, https://arxiv.org/abs/2104.02008: a channel's mean
and standard deviation over the map carry an image's style, and mixing them makes images of domains that are not there.

Three places of a ResNet mix, behind the stem and behind the first two stages, each with draws of its own. Nothing is mixed
by a layer in evaluation mode: attacks on training images, prototypes, reference models, evaluation, and the frozen base of
a phase that trains the head alone. The variance is that of the map's values (divided by H W), as the paper has it; the
authors' code divides by H W - 1, and a map of one value would have no variance.

Shape legend: B batch, C channels, H, W height and width of a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.config.tables.mix_style import MixStyleSettings
from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models import early_parts

Statistics = tuple[Tensor, Tensor]
"""Mean and standard deviation of each channel of each map, `[B, C]`."""
EPSILON = 1e-6
"""Added to a variance before its root is taken."""


class MixStyle:
    """The mixing of one client's round. All draws are made in host memory, so that they are the same on every device."""

    def __init__(self, settings: MixStyleSettings, seed: int) -> None:
        self._settings = settings
        self._draws = np.random.default_rng(seed)

    def apply(self, x_BCHW: Tensor) -> Tensor:
        """Return the maps of a batch at one of the places, mixed or as they are."""
        settings, batch_size, device = self._settings, len(x_BCHW), x_BCHW.device
        if self._draws.random() >= settings.probability:
            return x_BCHW
        own = channel_statistics(x_BCHW)
        own_B = torch.from_numpy(self._draws.beta(settings.alpha, settings.alpha, batch_size).astype(np.float32))
        others_B = torch.from_numpy(self._draws.permutation(batch_size)).to(device)
        return mixed(x_BCHW, own_B.to(device), own, (own[0][others_B], own[1][others_B]))

    @contextmanager
    def of(self, model: nn.Module, name: str) -> Iterator[None]:
        """Mix within the block what the model's early parts make in training mode.

        Raises:
            InvalidModel: The model, of this name in messages, is none of this package's ResNets.
        """
        parts = early_parts(model)
        if not parts:
            raise InvalidModel(f"training.mix_style mixes features of resnet10 and resnet18, and the model is {name!r}")

        def hook(part: nn.Module, inputs: tuple[Tensor, ...], x_BCHW: Tensor) -> Tensor:
            return self.apply(x_BCHW) if part.training else x_BCHW

        hooks = [part.register_forward_hook(hook) for part in parts]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()


def channel_statistics(x_BCHW: Tensor) -> Statistics:
    """Return the mean and the standard deviation of each channel of each map, `[B, C]`, float32 and without gradient."""
    x_BCHW = x_BCHW.detach().float()
    variance_BC = x_BCHW.var(dim=(2, 3), correction=0)
    return x_BCHW.mean(dim=(2, 3)), (variance_BC + EPSILON).sqrt()


def mixed(x_BCHW: Tensor, own_B: Tensor, own: Statistics, others: Statistics) -> Tensor:
    """Return maps whose channel statistics are partly others: lambda times their own and 1 - lambda times those.

    Args:
        own_B: Share of an image's own statistics, lambda.
    """
    own_B1 = own_B[:, None]
    mean_BC, deviation_BC = (
        own_B1 * mine_BC + (1 - own_B1) * theirs_BC for mine_BC, theirs_BC in zip(own, others, strict=True)
    )
    normal_BCHW = (x_BCHW.float() - own[0][:, :, None, None]) / own[1][:, :, None, None]
    return (normal_BCHW * deviation_BC[:, :, None, None] + mean_BC[:, :, None, None]).to(x_BCHW.dtype)
