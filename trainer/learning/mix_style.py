"""MixStyle: early features of an image get channel statistics that are part its own, part another image's.

Zhou, Yang, Qiao, Xiang, "Domain Generalization with MixStyle", ICLR 2021, https://arxiv.org/abs/2104.02008: a channel's mean
and standard deviation over the map carry an image's style, and mixing them makes images of domains that are not there.

Three places of a ResNet mix, behind the stem and behind the first two stages, each with draws of its own. Nothing is mixed
by a layer in evaluation mode: attacks on training images, prototypes, reference models, evaluation, and the frozen base of
a phase that trains the head alone. The variance is that of the map's values (divided by H W), as the paper has it; the
authors' code divides by H W - 1, and a map of one value would have no variance.

With styles of all clients (shared/methods/styles.py) the other statistics are drawn from these instead.

Shape legend: B batch, C channels, H, W height and width of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from shared.config.mix_style import MixStyleSettings
from shared.errors import InvalidConfig, InvalidModel
from shared.methods.server_arrays import ArrayGroup
from shared.methods.styles import PLACES
from trainer.models import early_parts

Statistics = tuple[Tensor, Tensor]
"""Mean and standard deviation of each channel of each map, `[B, C]`."""
EPSILON = 1e-6
"""Added to a variance before its root is taken."""


class MixStyle:
    """The mixing of one client's round. All draws are made in host memory, so that they are the same on every device."""

    def __init__(self, settings: MixStyleSettings, seed: int, styles: ArrayGroup | None = None) -> None:
        """Prepare.

        Args:
            settings: The run's `[training.mix_style]`.
            seed: Decides every draw.
            styles: Styles of all clients' images, to draw from; None to mix within the mini-batch.
        """
        self._settings = settings
        self._draws = np.random.default_rng(seed)
        self._styles = styles
        self._totals = {place: _Moments() for place in PLACES}

    def apply(self, x_BCHW: Tensor, place: str) -> Tensor:
        """Return the maps of a batch at a place, mixed or as they are."""
        settings, batch_size, device = self._settings, len(x_BCHW), x_BCHW.device
        is_mixed, is_counted = self._draws.random() < settings.probability, settings.statistics == "federation"
        if not (is_mixed or is_counted):
            return x_BCHW
        own = channel_statistics(x_BCHW)
        if is_counted:
            self._totals[place].add(own)
        if not is_mixed:
            return x_BCHW
        own_B = torch.from_numpy(self._draws.beta(settings.alpha, settings.alpha, batch_size).astype(np.float32))
        if self._styles is None:
            others_B = torch.from_numpy(self._draws.permutation(batch_size)).to(device)
            others = (own[0][others_B], own[1][others_B])
        else:
            mean_BC, deviation_BC = drawn_statistics(self._styles[place], batch_size, self._draws)
            others = (torch.from_numpy(mean_BC).to(device), torch.from_numpy(deviation_BC).to(device))
        return mixed(x_BCHW, own_B.to(device), own, others)

    @contextmanager
    def of(self, model: nn.Module, name: str) -> Iterator[None]:
        """Mix within the block what the model's early parts make in training mode.

        Raises:
            InvalidModel: The model, of this name in messages, is none of this package's ResNets.
        """
        parts = early_parts(model)
        if not parts:
            raise InvalidModel(f"training.mix_style mixes features of resnet10 and resnet18, and the model is {name!r}")

        def hook_of(place: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
            return lambda part, inputs, x_BCHW: self.apply(x_BCHW, place) if part.training else x_BCHW

        hooks = [part.register_forward_hook(hook_of(place)) for place, part in zip(PLACES, parts, strict=True)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def styles(self) -> ArrayGroup:
        """Return the styles of all images so far, before they were mixed with others in their place.

        Raises:
            InvalidConfig: There were none: no layer of the base was in training mode.
        """
        if not all(moments.count for moments in self._totals.values()):
            raise InvalidConfig(
                'training.mix_style.statistics = "federation" takes statistics while the base of the model trains, and the '
                "run's method trains its head alone; leave it out"
            )
        return {place: moments.array() for place, moments in self._totals.items()}


class _Moments:
    """Sums over images of channel statistics and of their squares, in float64 on the device."""

    def __init__(self) -> None:
        self.count = 0
        self._sums_22C: Tensor | None = None

    def add(self, statistics: Statistics) -> None:
        """Add the statistics of a batch."""
        of_batch_2BC = torch.stack(statistics).double()
        sums_22C = torch.stack((of_batch_2BC.sum(1), (of_batch_2BC**2).sum(1)), dim=1)
        self._sums_22C = sums_22C if self._sums_22C is None else self._sums_22C + sums_22C
        self.count += of_batch_2BC.shape[1]

    def array(self) -> npt.NDArray[np.float32]:
        """Return mean and variance over images of the channel's mean and of its deviation, `[2, 2, C]`."""
        assert self._sums_22C is not None
        mean_2C, square_2C = (self._sums_22C.cpu().numpy() / self.count).swapaxes(0, 1)
        return np.stack((mean_2C, np.maximum(square_2C - mean_2C**2, 0)), axis=1).astype(np.float32)


def drawn_statistics(
    styles_22C: npt.NDArray[np.float32], batch_size: int, draws: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return means and standard deviations `[B, C]`, float32, drawn for each image and channel from normal distributions.

    Args:
        styles_22C: Mean and variance of the channel's mean, and of its deviation.
        batch_size: B.
        draws: Where the draws come from.
    """
    center_2C, spread_2C = styles_22C[:, 0].astype(np.float64), np.sqrt(styles_22C[:, 1].astype(np.float64))
    normal_2BC = draws.standard_normal((2, batch_size, styles_22C.shape[2]))
    mean_BC, deviation_BC = center_2C[:, None] + spread_2C[:, None] * normal_2BC
    # A standard deviation below 0 would turn the map over.
    return mean_BC.astype(np.float32), np.maximum(deviation_BC, 0).astype(np.float32)


def channel_statistics(x_BCHW: Tensor) -> Statistics:
    """Return the mean and the standard deviation of each channel of each map, `[B, C]`, float32 and without gradient."""
    x_BCHW = x_BCHW.detach().float()
    variance_BC = x_BCHW.var(dim=(2, 3), correction=0)
    return x_BCHW.mean(dim=(2, 3)), (variance_BC + EPSILON).sqrt()


def mixed(x_BCHW: Tensor, own_B: Tensor, own: Statistics, others: Statistics) -> Tensor:
    """Return maps whose channel statistics are partly others: lambda times their own and 1 - lambda times those.

    Args:
        x_BCHW: The maps.
        own_B: Share of an image's own statistics, lambda.
        own: Statistics of the maps.
        others: Statistics to mix in.
    """
    own_B1 = own_B[:, None]
    mean_BC, deviation_BC = (
        own_B1 * mine_BC + (1 - own_B1) * theirs_BC for mine_BC, theirs_BC in zip(own, others, strict=True)
    )
    normal_BCHW = (x_BCHW.float() - own[0][:, :, None, None]) / own[1][:, :, None, None]
    return (normal_BCHW * deviation_BC[:, :, None, None] + mean_BC[:, :, None, None]).to(x_BCHW.dtype)
