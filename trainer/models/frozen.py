"""A backbone that is not trained: it turns images into features, the same for an image in whatever batch it comes.

It is no part of a model's state and travels nowhere: its SHA-256 stands in the run's configuration. One is shared by all
models of a process.

Shape legend: B batch, S image size, W width of the backbone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.types import FloatArray

FROZEN_BATCH = 16
"""Images that are computed at a time; fewer are filled up with black ones. Another size gives other last bits."""


class FrozenBackbone:
    """A backbone in evaluation mode without gradients."""

    def __init__(self, module: nn.Module, width: int, key: str) -> None:
        """Freeze a module.

        Args:
            module: Turns images `[B, 3, S, S]` into features `[B, W]`.
            width: W.
            key: Names the architecture, the weights and the image size.
        """
        self._module = module.eval().requires_grad_(False).to(memory_format=torch.channels_last)
        self.width, self.key = width, key

    def __deepcopy__(self, memo: Any) -> FrozenBackbone:
        return self

    def __call__(self, x_B3SS: Tensor) -> Tensor:
        """Return features `[B, W]`, float32."""
        module = self._module.to(x_B3SS.device)
        with torch.no_grad(), torch.autocast(x_B3SS.device.type, enabled=False):
            if torch.onnx.is_in_onnx_export():
                whole: Tensor = module(x_B3SS)
                return whole
            return torch.cat([_filled(module, piece_B3SS) for piece_B3SS in x_B3SS.split(FROZEN_BATCH)])

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors, by the names that they have in timm."""
        return dict(self._module.state_dict())

    def check(self, features_BW: FloatArray) -> None:
        """Refuse features that are not finite: every head on them would be meaningless.

        Raises:
            InvalidModel: They are not.
        """
        if not np.isfinite(features_BW).all():
            raise InvalidModel(f"backbone {self.key}: its features are not finite; keep other weights")


def _filled(module: nn.Module, x_B3SS: Tensor) -> Tensor:
    """Return the features of at most `FROZEN_BATCH` images, computed in a batch of that size."""
    missing = FROZEN_BATCH - len(x_B3SS)
    if missing:
        x_B3SS = torch.cat([x_B3SS, x_B3SS.new_zeros((missing, *x_B3SS.shape[1:]))])
    features_BW: Tensor = module(x_B3SS.to(memory_format=torch.channels_last))
    return features_BW[: FROZEN_BATCH - missing]
