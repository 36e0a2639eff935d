"""A client's images for the training device: kept as bytes, on the device or in host memory, and made into batches on it.

Where only layers above a frozen backbone are trained, its features stand for the images. The place where either is kept
changes no result: a batch has the same bytes before anything is computed from it.

Shape legend: N samples, B batch, S image size, W width of a backbone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedplcc.shared.config.run import DataSection
from fedplcc.shared.types import FloatArray
from fedplcc.trainer.data import ImageSet
from fedplcc.trainer.data.images.stored import StoredImages, pieces_of
from fedplcc.trainer.learning.augmenting.augmentation import Augmentation

SHARE_OF_FREE_MEMORY = 0.5
"""Largest share of the device's free memory that an image set may take. The rest is for the model, its gradients and
activations, and for other trainers on the same device."""

_Numbers = TypeVar("_Numbers", Tensor, slice)


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
            too large for that; no image where they are in files.
        labels_N: int64, on the device.
        mean_3: Subtracted per channel from values in [0, 1]; float32.
        std_3: Divided by, per channel; float32.
        num_classes: M.
        views_NVW: Features `[N, V + 1, W]` of each image and of its V changed copies, the image first; None without such.
        stored: The images, where they are in files: too large for host memory, and for the device.
    """

    kept_N: Tensor
    labels_N: Tensor
    mean_3: Tensor
    std_3: Tensor
    num_classes: int
    views_NVW: Tensor | None = None
    stored: StoredImages | None = None

    @classmethod
    def put(
        cls, images: ImageSet, contract: DataSection, device: torch.device, *, free_bytes: int | None = None
    ) -> DeviceImages:
        """Copy an image set to a device if it fits into the free memory; otherwise each batch is copied when it is made.

        Images that stay in host memory are not copied: the arrays must not change any more. Images in files stay there
        where the device is the processor.

        Args:
            contract: Gives the mean and the deviation by which images are normalised.
            free_bytes: Free memory of the device; measured if None.
        """
        stored = None
        if isinstance(images.images, StoredImages):
            read = _read_to(images.images, device, free_bytes)
            stored = images.images if read is None else None
            kept_N = torch.empty((0, *images.images.shape[1:]), dtype=torch.uint8) if read is None else read
        else:
            in_memory_N = torch.from_numpy(np.require(images.images_NSS3, requirements="W"))
            kept_N = _placed(in_memory_N, device, free_bytes)
        return cls(
            kept_N,
            torch.tensor(images.labels_N, device=device),
            torch.tensor(contract.mean, dtype=torch.float32, device=device),
            torch.tensor(contract.std, dtype=torch.float32, device=device),
            len(contract.classes),
            stored=stored,
        )

    @classmethod
    def joined(cls, sets: Sequence[DeviceImages]) -> DeviceImages:
        """Return the images of several sets of one run in one, in their order; those in files are read into host memory."""
        views = [each.views_NVW for each in sets if each.views_NVW is not None]
        return replace(
            sets[0],
            kept_N=torch.cat([each.rows(slice(None)) for each in sets]),
            labels_N=torch.cat([each.labels_N for each in sets]),
            views_NVW=torch.cat(views) if views else None,
            stored=None,
        )

    def without_images(self, device: torch.device) -> DeviceImages:
        """Return what is known of the images without these, for a device that gets its batches from another one."""
        kept = {name: getattr(self, name).to(device) for name in ("labels_N", "mean_3", "std_3")}
        return replace(self, kept_N=self.kept_N[:0].clone().to(device), views_NVW=None, stored=None, **kept)

    @property
    def batch_of_none(self) -> Tensor:
        """A batch without images, which has the shape and type of others."""
        return self.normalised(self.kept_N[:0].to(self.device))

    def with_features(self, features_NVW: FloatArray) -> DeviceImages:
        """Return features of a frozen backbone in place of the images: those of each, and of its changed copies after it."""
        placed = _placed(torch.from_numpy(features_NVW), self.device)
        return replace(self, kept_N=placed[:, 0], views_NVW=placed if placed.shape[1] > 1 else None, stored=None)

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def are_features(self) -> bool:
        """Whether features stand for the images."""
        return self.kept_N.is_floating_point()

    @property
    def nbytes(self) -> int:
        """Bytes of the images or features, wherever they are."""
        return self.kept_N.nbytes + (0 if self.stored is None else self.stored.nbytes)

    @property
    def place(self) -> str:
        """Where the images or features are: a device, or "disk"."""
        return str(self.kept_N.device) if self.stored is None else "disk"

    @property
    def is_damaged(self) -> bool:
        """Whether images in files were found to be damaged."""
        return self.stored is not None and self.stored.is_damaged

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
        if augmentation is not None and self.views_NVW is not None:
            views_B = augmentation.view_numbers(self.views_NVW.shape[1] - 1, len(numbers_B))
            places_B = numbers_B.to(self.views_NVW.device)
            kept_B = self._moved(self.views_NVW[places_B, views_B.to(places_B.device)])
            return self.normalised(kept_B), self.labels_N[numbers_B.to(self.device)]
        return self._made(self.rows(numbers_B), numbers_B, augmentation)

    def batches(
        self, plan: Iterable[Tensor], augmentation: Augmentation | None = None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the sample numbers of each mini-batch with what `batch` returns for them."""
        if self.stored is None:
            yield from ((numbers_B, *self.batch(numbers_B, augmentation)) for numbers_B in plan)
            return
        for numbers_B, kept_B in _read_ahead(self.rows, plan):
            yield numbers_B, *self._made(kept_B, numbers_B, augmentation)

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images and labels in order, as `batch` returns them; the last batch may be smaller."""
        pieces = [slice(start, start + batch_size) for start in range(0, len(self), batch_size)]
        read = (
            ((piece, self.rows(piece)) for piece in pieces) if self.stored is None else _read_ahead(self.rows, pieces)
        )
        for piece, kept_B in read:
            yield self.normalised(self._moved(kept_B)), self.labels_N[piece]

    def _made(
        self, kept_B: Tensor, numbers_B: Tensor, augmentation: Augmentation | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a mini-batch of what is kept of its images or features."""
        kept_B = self._moved(kept_B)
        if augmentation is not None and not self.are_features:
            kept_B = augmentation.apply(kept_B)
        return self.normalised(kept_B), self.labels_N[numbers_B.to(self.device)]

    def rows(self, numbers: Tensor | slice) -> Tensor:
        """Return images or features of these numbers as they are kept, from files in host memory.

        Raises:
            StoreUnavailable: Images in files cannot be read, or are damaged.
        """
        if self.stored is not None:
            return torch.from_numpy(self.stored[numbers if isinstance(numbers, slice) else numbers.numpy()])
        return self.kept_N[numbers if isinstance(numbers, slice) else numbers.to(self.kept_N.device)]

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


def _read_ahead(read: Callable[[_Numbers], Tensor], choices: Iterable[_Numbers]) -> Iterator[tuple[_Numbers, Tensor]]:
    """Yield each choice with what is read for it, while a thread reads what is chosen next from the disk."""
    with ThreadPoolExecutor(1, "images") as pool:
        begun: deque[tuple[_Numbers, Future[Tensor]]] = deque()
        for numbers in choices:
            begun.append((numbers, pool.submit(read, numbers)))
            if len(begun) > 1:
                first, found = begun.popleft()
                yield first, found.result()
        for last, found in begun:
            yield last, found.result()


def _read_to(images: StoredImages, device: torch.device, free_bytes: int | None) -> Tensor | None:
    """Return images in files as a tensor on an accelerator if they fit into its free memory; None otherwise."""
    free = free_memory(device) if free_bytes is None else free_bytes
    if free is None or images.nbytes > free * SHARE_OF_FREE_MEMORY:
        return None
    # Another process may have taken the memory since it was measured.
    with suppress(torch.OutOfMemoryError):
        kept_N, begin = torch.empty(images.shape, dtype=torch.uint8, device=device), 0
        for some_nSS3 in pieces_of(images):
            kept_N[begin : begin + len(some_nSS3)] = torch.from_numpy(some_nSS3).to(device)
            begin += len(some_nSS3)
        return kept_N
    return None


def _placed(kept_N: Tensor, device: torch.device, free_bytes: int | None = None) -> Tensor:
    """Return a tensor on the device if it fits into the free memory; otherwise as it is."""
    free = free_memory(device) if free_bytes is None else free_bytes
    if free is None or kept_N.nbytes <= free * SHARE_OF_FREE_MEMORY:
        # Another process may have taken the memory since it was measured.
        with suppress(torch.OutOfMemoryError):
            return kept_N.to(device)
    return kept_N
