"""CNN4: two convolutions and two linear layers, 128 features.

FedCCL (https://arxiv.org/abs/2404.09259) says "4-layer CNN" with a last hidden size of 128 and nothing else. Here: 5x5
convolution to 32 maps, pooling by 2, 5x5 convolution to 64 maps, pooling by 2, a linear layer to 128 rectified features,
and the classifier. No margins, no batch normalisation, torch's default initialisation.

Shape legend: B batch, S image size, D = 128, M classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from shared.errors import InvalidModel

MIN_IMAGE_SIZE = 16


class CNN4(nn.Module):
    """Two convolutions, each with pooling, then the feature layer and the classifier."""

    feature_dim = 128
    head_prefixes = ("classifier.",)

    def __init__(self, num_classes: int, image_size: int) -> None:
        super().__init__()
        if image_size < MIN_IMAGE_SIZE:
            raise InvalidModel(f"model 'cnn4' needs image_size >= {MIN_IMAGE_SIZE}, not {image_size}")
        last_side = ((image_size - 4) // 2 - 4) // 2
        self.extractor = nn.Sequential(
            nn.Conv2d(3, 32, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * last_side**2, self.feature_dim),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(self.feature_dim, num_classes)

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`, not negative."""
        z_BD: Tensor = self.extractor(x_BCSS)
        return z_BD

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCSS))
        return logits_BM
