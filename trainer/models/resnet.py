"""ResNet10: one basic block a stage, 512 features.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, https://arxiv.org/abs/1512.03385, section 3, with one
block a stage as federated prototype papers use it. Stems:

- `imagenet5x5`: 5x5 convolution of stride 2 with a margin of 1, then 3x3 max-pooling of stride 2 (FedPLVM, FedPLCC;
  4,906,314 parameters at ten classes).
- `cifar3x3`: 3x3 convolution of stride 1, no pooling (FPL; 4,903,242 parameters).

Features are averages of rectified maps, so they and their cosines are never negative.

Shape legend: B batch, C channels, H, W height and width of a map, D = 512, M classes.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import relu

Stem = Literal["imagenet5x5", "cifar3x3"]
WIDTHS = (64, 128, 256, 512)
STRIDES = (1, 2, 2, 2)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return maps `[B, channels, H / stride, W / stride]`, not negative."""
        y_BCHW = relu(self.bn1(self.conv1(x_BCHW)), inplace=True)
        return relu(self.bn2(self.conv2(y_BCHW)) + self.shortcut(x_BCHW), inplace=True)


class ResNet10(nn.Module):
    """Stem, four stages of one block, mean over the last map, a linear classifier."""

    feature_dim = WIDTHS[-1]
    head_prefixes = ("classifier.",)

    def __init__(self, num_classes: int, stem: Stem) -> None:
        super().__init__()
        if stem == "imagenet5x5":
            convolution, pooling = nn.Conv2d(3, WIDTHS[0], 5, 2, padding=1, bias=False), [nn.MaxPool2d(3, 2, padding=1)]
        else:
            convolution, pooling = nn.Conv2d(3, WIDTHS[0], 3, 1, padding=1, bias=False), []
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(inplace=True), *pooling)
        self.stages = nn.Sequential(
            *(
                BasicBlock(before, width, stride)
                for before, width, stride in zip((WIDTHS[0], *WIDTHS), WIDTHS, STRIDES, strict=False)
            )
        )
        self.classifier = nn.Linear(self.feature_dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`, not negative."""
        # A mean, not adaptive pooling, whose gradient CUDA computes in no fixed order.
        pooled_BD: Tensor = self.stages(self.stem(x_BCHW)).mean(dim=(2, 3))
        return pooled_BD

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCHW))
        return logits_BM
