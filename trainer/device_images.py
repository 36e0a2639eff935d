"""A client's images on the training device: held as bytes, made into batches there.

Shape legend: N samples, B batch, S image size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from shared.run_config import DataSection
from trainer.data import ImageSet


@dataclass(frozen=True, slots=True, eq=False)
class DeviceImages:
    """A whole image set on one device.

    Attributes:
        images_NSS3: uint8.
        labels_N: int64.
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
    def put(cls, images: ImageSet, contract: DataSection, device: torch.device) -> DeviceImages:
        """Copy an image set to the device; it is normalised as the run's data contract says."""
        return cls(
            torch.tensor(images.images_NSS3, device=device),
            torch.tensor(images.labels_N, device=device),
            torch.tensor(contract.mean, dtype=torch.float32, device=device),
            torch.tensor(contract.std, dtype=torch.float32, device=device),
            len(contract.classes),
        )

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def device(self) -> torch.device:
        """Where the images are, and where batches are made."""
        return self.images_NSS3.device

    def batch(self, numbers_B: Tensor, augmentation: Augmentation | None = None) -> tuple[Tensor, Tensor]:
        """Return normalised images `[B, 3, S, S]`, float32, and their labels `[B]`.

        Args:
            numbers_B: Which samples; int64, in host memory.
            augmentation: What to do to the images before they are normalised.
        """
        numbers_B = numbers_B.to(self.device)
        images_BSS3 = self.images_NSS3[numbers_B]
        if augmentation is not None:
            images_BSS3 = augmentation.apply(images_BSS3)
        return self._normalised(images_BSS3), self.labels_N[numbers_B]

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images and labels in order, as `batch` returns them; the last batch may be smaller."""
        for start in range(0, len(self), batch_size):
            piece = slice(start, start + batch_size)
            yield self._normalised(self.images_NSS3[piece]), self.labels_N[piece]

    def _normalised(self, images_BSS3: Tensor) -> Tensor:
        x_B3SS = images_BSS3.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return x_B3SS.div_(255).sub_(self.mean_3[:, None, None]).div_(self.std_3[:, None, None])


class Augmentation:
    """Random changes to training images.

    Draws are made in host memory, so that they are the same on every device.
    """

    def __init__(self, names: Sequence[str], seed: int) -> None:
        """Prepare the draws.

        Args:
            names: `crop`: a black margin of 1/8 of the image size, then a window of the old size anywhere in it; `flip`:
                mirrored left to right every other time.
            seed: Decides every draw.
        """
        self._names = frozenset(names)
        self._generator = torch.Generator().manual_seed(seed)

    def apply(self, images_BSS3: Tensor) -> Tensor:
        """Return the changed images, uint8 `[B, S, S, 3]`."""
        if "crop" in self._names:
            images_BSS3 = self._cropped(images_BSS3)
        if "flip" in self._names:
            is_flipped_B = torch.rand(len(images_BSS3), generator=self._generator) < 0.5
            is_flipped_B = is_flipped_B.to(images_BSS3.device)[:, None, None, None]
            images_BSS3 = torch.where(is_flipped_B, images_BSS3.flip(2), images_BSS3)
        return images_BSS3

    def _cropped(self, images_BSS3: Tensor) -> Tensor:
        batch_size, side, device = len(images_BSS3), images_BSS3.shape[1], images_BSS3.device
        margin = side // 8
        padded = pad(images_BSS3, (0, 0, margin, margin, margin, margin))
        corners_2B = torch.randint(2 * margin + 1, (2, batch_size), generator=self._generator).to(device)
        rows_BS, columns_BS = corners_2B[:, :, None] + torch.arange(side, device=device)
        return padded[
            torch.arange(batch_size, device=device)[:, None, None], rows_BS[:, :, None], columns_BS[:, None, :]
        ]
