"""A model with another feature size than its run's: a linear projection behind its features, and a classifier of that size.

Prototypes are compared across clients, so the features of all have one size. The state is named `body.*`, `projection.*`
and `classifier.*`; the projection is part of the base. Both layers have torch's default initialisation.

Shape legend: B batch, S image size, W feature size of the body, D of the run, M classes.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.trainer.models.contract import FeatureModel


class ProjectedModel(nn.Module):
    """A model without its classifier, a projection of its features from W to D, and a linear classifier."""

    head_prefixes = ("classifier.",)

    def __init__(self, body: nn.Module, width: int, dim: int, num_classes: int) -> None:
        super().__init__()
        self.body = body
        self.projection = nn.Linear(width, dim)
        self.classifier = nn.Linear(dim, num_classes)
        self.feature_dim = dim

    def features(self, x_BCSS: Tensor) -> Tensor:
        """Return feature vectors `[B, D]`, which may be negative."""
        z_BD: Tensor = self.projection(cast(FeatureModel, self.body).features(x_BCSS))
        return z_BD

    def forward(self, x_BCSS: Tensor) -> Tensor:
        """Return logits `[B, M]`."""
        logits_BM: Tensor = self.classifier(self.features(x_BCSS))
        return logits_BM


def projected(model: nn.Module, name: str, num_classes: int, dim: int) -> nn.Module:
    """Return a model whose features have the size D: the given one if they have, else one with a projection.

    Args:
        model: Keeps `contract.FeatureModel`; changed, and part of what is returned.
        num_classes: M.
        dim: D.

    Raises:
        InvalidModel: Its classifier is no linear layer, which the projection would need in another size.
    """
    width = cast(FeatureModel, model).feature_dim
    if width == dim:
        return model
    if not isinstance(getattr(model, "classifier", None), nn.Linear):
        raise InvalidModel(
            f"model {name!r} has {width} features, those of the run have {dim}, and its classifier is no linear layer; "
            f"choose a model with {dim} features, or one whose classifier is linear"
        )
    model.classifier = nn.Identity()  # has no state; a model whose forward names it stays whole
    return ProjectedModel(model, width, dim, num_classes)
