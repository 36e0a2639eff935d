"""CNN4 and CNN5: two convolutions and two or three linear layers, 128 features.

FedCCL (https://arxiv.org/abs/2404.09259) gives "4-layer CNN", "5-layer CNN" and a last hidden size of 128, no more. Here:

- `cnn4`: 5x5 convolution to 32 maps, pooling by 2, 5x5 convolution to 64 maps, pooling by 2, a linear layer to 128 rectified
  features, the classifier.
- `cnn5`: 64 maps in both convolutions, and a linear layer to 256 before the features.

No margins, no batch normalisation, torch's default initialisation.

Shape legend: B batch, S image size, D = 128, M classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel

MIN_IMAGE_SIZE = 16


class CNN(nn.Module):
    """Two convolutions, each with pooling, then linear layers of which the last but one gives the features."""

    feature_dim = 128
    head_prefixes = ("classifier.",)

    def __init__(self, num_classes: int, image_size: int, *, maps: tuple[int, int], hidden: Sequence[int] = ()) -> None:
        """Make the layers.

        Args:
            num_classes: M.
            image_size: S.
            maps: Output channels of the two convolutions.
            hidden: Widths of the linear layers before the features.

        Raises:
            InvalidModel: Nothing would be left of the image.
        """
        super().__init__()
        if image_size < MIN_IMAGE_SIZE:
            raise InvalidModel(f"cnn4 and cnn5 need image_size >= {MIN_IMAGE_SIZE}, not {image_size}")
        last_side = ((image_size - 4) // 2 - 4) // 2
        layers: list[nn.Module] = []
        for before, after in pairwise((3, *maps)):
            layers += nn.Conv2d(before, after, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        layers.append(nn.Flatten())
        for before, after in pairwise((maps[-1] * last_side**2, *hidden, self.feature_dim)):
            layers += nn.Linear(before, after), nn.ReLU(inplace=True)
        self.extractor = nn.Sequential(*layers)
        self.classifier = nn.Linear(self.feature_dim, num_classes)

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`, not negative."""
        z_BD: Tensor = self.extractor(x_BCSS)
        return z_BD

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCSS))
        return logits_BM
