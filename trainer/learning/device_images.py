"""A client's images for the training device: kept as bytes, on the device or in host memory, and made into batches on it.

Where only layers above a frozen backbone are trained, its features stand for the images. The place where either is kept
changes no result: a batch has the same bytes before anything is computed from it.

Shape legend: N samples, B batch, S image size, W width of a backbone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.types import FloatArray
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.augmenting.augmentation import Augmentation

SHARE_OF_FREE_MEMORY = 0.5
"""Largest share of the device's free memory that an image set may take. The rest is for the model, its gradients and
activations, and for other trainers on the same device."""


def free_memory(device: torch.device) -> int | None:
    """Return the number of bytes free for new tensors on a device; None for the processor."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    # Memory that torch keeps of freed tensors is not free to the driver, but it is to torch.
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceImages:
    """A whole image set for one device.

    Attributes:
        kept_N: Images `[N, S, S, 3]`, uint8, or features `[N, W]`, float32; on the device, or in host memory where they are
            too large for that.
        labels_N: int64, on the device.
        mean_3: Subtracted per channel from values in [0, 1]; float32.
        std_3: Divided by, per channel; float32.
        num_classes: M.
        views_NVW: Features `[N, V + 1, W]` of each image and of its V changed copies, the image first; None without such.
    """

    kept_N: Tensor
    labels_N: Tensor
    mean_3: Tensor
    std_3: Tensor
    num_classes: int
    views_NVW: Tensor | None = None

    @classmethod
    def put(
        cls, images: ImageSet, contract: DataSection, device: torch.device, *, free_bytes: int | None = None
    ) -> DeviceImages:
        """Copy an image set to a device if it fits into the free memory; otherwise each batch is copied when it is made.

        Images that stay in host memory are not copied: the arrays must not change any more.

        Args:
            images: The image set.
            contract: Gives the mean and the deviation by which images are normalised.
            device: Where batches are made.
            free_bytes: Free memory of the device; measured if None.
        """
        kept_N = torch.from_numpy(np.require(images.images_NSS3, requirements="W"))
        return cls(
            _placed(kept_N, device, free_bytes),
            torch.tensor(images.labels_N, device=device),
            torch.tensor(contract.mean, dtype=torch.float32, device=device),
            torch.tensor(contract.std, dtype=torch.float32, device=device),
            len(contract.classes),
        )

    def with_features(self, features_NVW: FloatArray) -> DeviceImages:
        """Return features of a frozen backbone in place of the images: those of each, and of its changed copies after it."""
        placed = _placed(torch.from_numpy(features_NVW), self.device)
        return replace(self, kept_N=placed[:, 0], views_NVW=placed if placed.shape[1] > 1 else None)

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def are_features(self) -> bool:
        """Whether features stand for the images."""
        return self.kept_N.is_floating_point()

    @property
    def device(self) -> torch.device:
        """The device on which batches are made."""
        return self.labels_N.device

    def batch(self, numbers_B: Tensor, augmentation: Augmentation | None = None) -> tuple[Tensor, Tensor]:
        """Return normalised images `[B, 3, S, S]` or features `[B, W]`, float32, and their labels `[B]`.

        Args:
            numbers_B: Numbers of the samples; int64, in host memory.
            augmentation: Changes images before they are normalised, and chooses among the views of features.
        """
        places_B = numbers_B.to(self.kept_N.device)
        if augmentation is not None and self.views_NVW is not None:
            views_B = augmentation.view_numbers(self.views_NVW.shape[1] - 1, len(numbers_B))
            kept_B = self._moved(self.views_NVW[places_B, views_B.to(places_B.device)])
        else:
            kept_B = self._moved(self.kept_N[places_B])
            if augmentation is not None and not self.are_features:
                kept_B = augmentation.apply(kept_B)
        return self.normalised(kept_B), self.labels_N[numbers_B.to(self.device)]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images and labels in order, as `batch` returns them; the last batch may be smaller."""
        for start in range(0, len(self), batch_size):
            piece = slice(start, start + batch_size)
            yield self.normalised(self._moved(self.kept_N[piece])), self.labels_N[piece]

    def _moved(self, kept_B: Tensor) -> Tensor:
        """Return a piece of what is kept, on the device."""
        if kept_B.device == self.device:
            return kept_B
        # From pinned memory the copy runs while the device still computes the step before.
        return kept_B.pin_memory().to(self.device, non_blocking=True)

    def normalised(self, kept_B: Tensor) -> Tensor:
        """Return images `[B, S, S, 3]` as a model takes them, `[B, 3, S, S]`; features as they are."""
        if self.are_features:
            return kept_B
        x_B3SS = kept_B.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return x_B3SS.div_(255).sub_(self.mean_3[:, None, None]).div_(self.std_3[:, None, None])


def _placed(kept_N: Tensor, device: torch.device, free_bytes: int | None = None) -> Tensor:
    """Return a tensor on the device if it fits into the free memory; otherwise as it is."""
    free = free_memory(device) if free_bytes is None else free_bytes
    if free is None or kept_N.nbytes <= free * SHARE_OF_FREE_MEMORY:
        # Another process may have taken the memory since it was measured.
        with suppress(torch.OutOfMemoryError):
            return kept_N.to(device)
    return kept_N
