"""A client's images for the training device: kept as bytes, on the device or in host memory, and made into batches on it.

The place where images are kept changes no result: a batch has the same bytes before anything is computed from it.

Shape legend: N samples, B batch, S image size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedplcc.shared.config.run import DataSection
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.learning.augmentation import Augmentation

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
        images_NSS3: uint8; on the device, or in host memory where it is too large for that.
        labels_N: int64, on the device.
        mean_3: Subtracted per channel from values in [0, 1]; float32.
        std_3: Divided by, per channel; float32.
        num_classes: M.
    """

    images_NSS3: Tensor
    labels_N: Tensor
    mean_3: Tensor
    std_3: Tensor
    num_classes: int

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
        images_NSS3 = torch.from_numpy(np.require(images.images_NSS3, requirements="W"))
        free = free_memory(device) if free_bytes is None else free_bytes
        if free is None or images_NSS3.nbytes <= free * SHARE_OF_FREE_MEMORY:
            # Another process may have taken the memory since it was measured.
            with suppress(torch.OutOfMemoryError):
                images_NSS3 = images_NSS3.to(device)
        return cls(
            images_NSS3,
            torch.tensor(images.labels_N, device=device),
            torch.tensor(contract.mean, dtype=torch.float32, device=device),
            torch.tensor(contract.std, dtype=torch.float32, device=device),
            len(contract.classes),
        )

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def device(self) -> torch.device:
        """The device on which batches are made."""
        return self.labels_N.device

    def batch(self, numbers_B: Tensor, augmentation: Augmentation | None = None) -> tuple[Tensor, Tensor]:
        """Return normalised images `[B, 3, S, S]`, float32, and their labels `[B]`.

        Args:
            numbers_B: Numbers of the samples; int64, in host memory.
            augmentation: Changes the images before they are normalised.
        """
        images_BSS3 = self._moved(self.images_NSS3[numbers_B.to(self.images_NSS3.device)])
        if augmentation is not None:
            images_BSS3 = augmentation.apply(images_BSS3)
        return self._normalised(images_BSS3), self.labels_N[numbers_B.to(self.device)]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images and labels in order, as `batch` returns them; the last batch may be smaller."""
        for start in range(0, len(self), batch_size):
            piece = slice(start, start + batch_size)
            yield self._normalised(self._moved(self.images_NSS3[piece])), self.labels_N[piece]

    def _moved(self, images_BSS3: Tensor) -> Tensor:
        """Return the images on the device."""
        if images_BSS3.device == self.device:
            return images_BSS3
        # From pinned memory the copy runs while the device still computes the step before.
        return images_BSS3.pin_memory().to(self.device, non_blocking=True)

    def _normalised(self, images_BSS3: Tensor) -> Tensor:
        x_B3SS = images_BSS3.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return x_B3SS.div_(255).sub_(self.mean_3[:, None, None]).div_(self.std_3[:, None, None])
