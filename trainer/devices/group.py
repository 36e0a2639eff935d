"""The devices of one training as one of them sees them: its part of each mini-batch, and what it shares with the others.

The first device makes the mini-batches, so that order and changes of images are those of one device, and sends each other
one its part. Gradients are those of torch's DistributedDataParallel: the mean over devices, of losses weighted so that it is
the mean over the batch's images. What a loss compares within a batch it compares within the part. Batch normalisation takes
its part's statistics; the running ones are the first device's.

Shape legend: B batch, P images of a part, D feature size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from fedplcc.trainer.devices.parts import Part, parts

LONGEST = timedelta(minutes=5)
"""Longest wait of a device for another one, which may read images; a process that ends, or a stop, is noticed at once."""

Batch = tuple[Tensor, Tensor, Tensor]
"""Numbers `[B]` of a mini-batch's samples, and images and labels `[P]` of a part."""


class Group:
    """One device among those of a training.

    Attributes:
        rank: Its number, from 0.
    """

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._parts: list[Part] = []

    def given(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the first device's part of each mini-batch, after the others have theirs."""
        for numbers_B, x_B, labels_B in batches:
            self._parts = parts(len(numbers_B), self.size)
            for rank, part in enumerate(self._parts[1:], 1):
                dist.send(x_B[part.rows].contiguous(), rank)
            rows = self._parts[0].rows
            yield numbers_B, x_B[rows], labels_B[rows]

    def received(self, plan: Iterator[Tensor], labels_N: Tensor, like: Tensor) -> Iterator[Batch]:
        """Yield another device's part of each mini-batch of the plan; `like` is a batch of no images."""
        for numbers_B in plan:
            self._parts = parts(len(numbers_B), self.size)
            part = self._parts[self.rank]
            x_P = like.new_empty((part.size, *like.shape[1:]))
            dist.recv(x_P, 0)
            yield numbers_B, x_P, labels_N[numbers_B[part.rows].to(self.device)]

    def shared(self, model: nn.Module, forward: Callable[..., tuple[Tensor, Any, Tensor]]) -> Callable[..., Any]:
        """Return the forward pass whose loss has the gradient of all devices; `forward` computes it of a part alone."""
        inner = _Forward(model, forward)
        module = DistributedDataParallel(inner, find_unused_parameters=True)

        def step(x_P: Tensor, labels_P: Tensor) -> tuple[Tensor, Any, Tensor]:
            return module(x_P, labels_P), *inner.beside

        return step

    def weighed(self, loss: Tensor) -> Tensor:
        """Return a part's loss such that the mean over devices is the mean over the mini-batch's images."""
        return loss * (self._parts[self.rank].weight * self.size)

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Return the means over a mini-batch of what each device has of its part."""
        weight = self._parts[self.rank].weight
        total = torch.tensor([weight * value for value in values.values()], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def gathered(self, features_PD: Tensor) -> Tensor:
        """Return the features of the whole mini-batch `[B, D]` to the first device; to another those of its part."""
        features_PD = features_PD.detach().contiguous()
        if self.rank:
            if self._parts[self.rank].weight:
                dist.send(features_PD, 0)
            return features_PD
        found = [features_PD]
        for rank, part in enumerate(self._parts[1:], 1):
            if part.weight:
                found.append(features_PD.new_empty((part.size, *features_PD.shape[1:])))
                dist.recv(found[-1], rank)
        return torch.cat(found)


class _Forward(nn.Module):
    """A forward pass as torch shares its gradients: the loss alone is its result, the rest lies beside it."""

    def __init__(self, model: nn.Module, forward: Callable[..., tuple[Tensor, Any, Tensor]]) -> None:
        super().__init__()
        self.model, self._forward = model, forward
        # Torch warns where it looks for parameters that a loss leaves out, as of some methods, and finds none.
        self.left_out = nn.Parameter(torch.zeros(1, device=next(model.parameters()).device))
        self.beside: tuple[Any, Tensor]

    def forward(self, x_P: Tensor, labels_P: Tensor) -> Tensor:
        loss, *beside = self._forward(x_P, labels_P)
        self.beside = (beside[0], beside[1])
        return loss


@contextmanager
def joined(rank: int, size: int, device: torch.device, folder: Path) -> Iterator[Group]:
    """Meet the processes of the other devices by a file in a folder of ours; leave them at the end."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.FileStore(str(folder / "met"), size),  # type: ignore[attr-defined]
        rank=rank,
        world_size=size,
        timeout=LONGEST,
        device_id=device if device.type == "cuda" else None,
    )
    try:
        yield Group(rank, size, device)
    finally:
        abort()
        if dist.is_initialized():
            dist.destroy_process_group()


def abort() -> None:
    """End what NCCL waits for, which does not notice by itself that a process is gone; Gloo does."""
    with suppress(ValueError, AssertionError):  # another thread was first
        if dist.is_initialized() and dist.get_backend() == "nccl":
            dist.distributed_c10d._abort_process_group()
