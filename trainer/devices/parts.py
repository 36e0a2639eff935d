"""Parts of a mini-batch on several devices: which images each device has, and how much its gradient counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

LEAST = 2
"""Least images of a part in a larger batch: batch normalisation has no variance over one value."""


@dataclass(frozen=True, slots=True)
class Part:
    """A device's part of a mini-batch.

    Attributes:
        rows: Its images, neighbours in the batch.
        weight: Share of the batch's images; 0 where another device counts them already.
    """

    rows: slice
    weight: float

    @property
    def size(self) -> int:
        """Number of images."""
        return int(self.rows.stop - self.rows.start)


def parts(num_images: int, num_devices: int) -> list[Part]:
    """Return the part of each device, in the order of the batch; sizes differ by one at most.

    A batch too small for parts of `LEAST` images goes to the first devices; each other one computes the last part again,
    with a weight of 0, so that all devices take the same steps.

    Args:
        num_images: At least 1.
        num_devices: At least 1.
    """
    num_parts = max(1, min(num_devices, num_images // LEAST))
    least, more = divmod(num_images, num_parts)
    ends = [least * number + min(number, more) for number in range(num_parts + 1)]
    own = [Part(slice(begin, end), (end - begin) / num_images) for begin, end in pairwise(ends)]
    return own + [Part(own[-1].rows, 0.0)] * (num_devices - num_parts)
