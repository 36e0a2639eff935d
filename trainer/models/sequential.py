"""A bare `torch.nn.Sequential` as a model: its last layer is the classifier, all before it gives the features.

Shape legend: B batch, S image size, D features, M classes.
"""

from __future__ import annotations

from torch import Tensor, nn


class SequentialModel(nn.Module):
    """The layers of a `Sequential`, of which the last one is linear; its state is named `body.*` and `classifier.*`."""

    head_prefixes = ("classifier.",)

    def __init__(self, body: nn.Sequential, classifier: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.classifier = classifier
        self.feature_dim = classifier.in_features

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`; maps are flattened."""
        z_BD: Tensor = self.body(x_BCSS).flatten(1)
        return z_BD

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCSS))
        return logits_BM


def wrapped(model: object) -> object:
    """Return a bare `Sequential` that ends in a linear layer as a model; anything else as it is."""
    if type(model) is not nn.Sequential or len(model) < 2 or not isinstance(model[-1], nn.Linear):
        return model
    return SequentialModel(model[:-1], model[-1])
