"""ResNet10 and ResNet18: basic blocks in four stages, 512 features.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, https://arxiv.org/abs/1512.03385, section 3; ResNet10
has one block a stage, as federated prototype papers use it, ResNet18 two. Stems:

- `imagenet7x7`: 7x7 convolution of stride 2, then 3x3 max-pooling of stride 2 (the ResNet paper; FedMLP's ResNet18).
- `imagenet5x5`: 5x5 convolution of stride 2 with a margin of 1, then the same pooling (FedPLVM, FedPLCC: ResNet10 of
  4,906,314 parameters at ten classes).
- `cifar3x3`: 3x3 convolution of stride 1, no pooling (FPL: ResNet10 of 4,903,242 parameters).

With `norm = "group"` every BatchNorm layer is GroupNorm of 32 groups: Wu, He, "Group Normalization", ECCV 2018,
https://arxiv.org/abs/1803.08494, whose default that is. The widths are 64 and more, so a group has two channels or more.
Both have as many parameters, and GroupNorm begins as BatchNorm does, at 1 and 0; tensors keep their names.

ResNet18 with `imagenet7x7` is torchvision's, under other names. Features are averages of rectified maps, so they and their
cosines are never negative.

Shape legend: B batch, C channels, H, W height and width of a map, D = 512, M classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

Norm = Literal["batch", "group"]

WIDTHS = (64, 128, 256, 512)
STRIDES = (1, 2, 2, 2)
NUM_GROUPS = 32
"""Groups of channels of a GroupNorm layer."""


@dataclass(frozen=True, slots=True)
class Stem:
    """The first convolution, and whether max-pooling follows it."""

    kernel_size: int
    stride: int
    padding: int
    has_pooling: bool


STEMS: Mapping[str, Stem] = {
    "imagenet7x7": Stem(7, 2, 3, has_pooling=True),
    "imagenet5x5": Stem(5, 2, 1, has_pooling=True),
    "cifar3x3": Stem(3, 1, 1, has_pooling=False),
}
"""Stems by their names in `fedplcc.shared.config.run.STEMS`."""


NORMS: Mapping[Norm, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(NUM_GROUPS, channels),
}
"""Normalisation layers by name, as functions of the number of channels."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, in_channels: int, channels: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = NORMS[norm](channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = NORMS[norm](channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), NORMS[norm](channels)
            )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return maps `[B, channels, H / stride, W / stride]`, not negative."""
        y_BCHW = relu(self.bn1(self.conv1(x_BCHW)), inplace=True)
        return relu(self.bn2(self.conv2(y_BCHW)) + self.shortcut(x_BCHW), inplace=True)


class Stages(Protocol):
    """Another way to compute stem and stages without gradients."""

    def fits(self, x_BCHW: Tensor) -> bool:
        """Whether these images can go this way."""

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """Return the last map."""


class ResNet(nn.Module):
    """Stem, four stages of basic blocks, mean over the last map, a linear classifier."""

    feature_dim = WIDTHS[-1]
    head_prefixes = ("classifier.",)

    def __init__(self, num_classes: int, stem: str, *, blocks_per_stage: int, norm: Norm = "batch") -> None:
        super().__init__()
        shape = STEMS[stem]
        convolution = nn.Conv2d(3, WIDTHS[0], shape.kernel_size, shape.stride, shape.padding, bias=False)
        pooling = [nn.MaxPool2d(3, 2, padding=1)] if shape.has_pooling else []
        self.stem = nn.Sequential(convolution, NORMS[norm](WIDTHS[0]), nn.ReLU(inplace=True), *pooling)
        blocks = []
        before = WIDTHS[0]
        for width, stride in zip(WIDTHS, STRIDES, strict=True):
            for number in range(blocks_per_stage):
                blocks.append(BasicBlock(before, width, stride if number == 0 else 1, norm))
                before = width
        self.stages = nn.Sequential(*blocks)
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        self._other_way: Stages | None = None
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def early_parts(self) -> tuple[nn.Module, ...]:
        """The stem and the last blocks of the first two stages, whose maps still have an image's style."""
        per_stage = len(self.stages) // len(WIDTHS)
        return self.stem, self.stages[per_stage - 1], self.stages[2 * per_stage - 1]

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`, not negative."""
        way = None if torch.is_grad_enabled() else self._other_way
        maps_BDHW = self.stages(self.stem(x_BCHW)) if way is None or not way.fits(x_BCHW) else way(x_BCHW)
        # A mean, not adaptive pooling, whose gradient CUDA computes in no fixed order.
        pooled_BD: Tensor = maps_BDHW.mean(dim=(2, 3))
        return pooled_BD

    @contextmanager
    def computed_by(self, stages: Stages) -> Iterator[None]:
        """Within the block, let this compute stem and stages where no gradient is asked for."""
        before, self._other_way = self._other_way, stages
        try:
            yield
        finally:
            self._other_way = before

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCHW))
        return logits_BM
