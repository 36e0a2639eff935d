"""Medians and trimmed means of each number of several blocks by itself.

Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML 2018,
https://arxiv.org/abs/1803.01498. All clients count alike. Values are put in ascending order, added in it in float64 and
rounded once, so no order of the blocks, and no cutting of them, changes a byte.

Shape legend: K clients, E elements of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.maths import to_float32

MOST_IN_NETWORK = 40
"""Most clients whose values a network of comparisons sorts; it has about K log^2 K / 4 of them."""
COLUMNS = 1 << 12
"""Most elements that are sorted at a time."""
SORTED_VALUES = 1 << 17
"""Most values of all clients that are sorted at a time, so that they stay in the processor's cache."""


def median(blocks: Iterable[Block], num_blocks: int) -> Block:
    """Return the median of each number: of floats between two in the middle their mean, of integers the lower.

    Args:
        blocks: K arrays of one shape and dtype, float32 or int64, all finite.
        num_blocks: K, from 1.

    Raises:
        ValueError: Another number of blocks, or blocks of several shapes.
    """
    return trimmed_mean(blocks, num_blocks, (num_blocks - 1) // 2)


def trimmed_mean(blocks: Iterable[Block], num_blocks: int, num_trimmed: int) -> Block:
    """Return the mean of each number without the lowest and the highest ones; of integers the lower median.

    Args:
        blocks: As in `median`.
        num_blocks: K.
        num_trimmed: Values that are left out at each end; fewer than K / 2.

    Raises:
        ValueError: Another number of blocks, blocks of several shapes, or nothing that is left.
    """
    if not 0 <= 2 * num_trimmed < num_blocks:
        raise ValueError(f"{num_trimmed} of {num_blocks} values at each end leave none")
    values_KE = _stacked(blocks, num_blocks)
    shape, flat_KE = values_KE.shape[1:], values_KE.reshape(num_blocks, -1)
    made = np.empty(flat_KE.shape[1], flat_KE.dtype)
    is_whole = np.issubdtype(made.dtype, np.integer)
    columns = max(1, min(COLUMNS, SORTED_VALUES // num_blocks))
    for first in range(0, flat_KE.shape[1], columns):
        here = slice(first, first + columns)
        rows = _ascending(flat_KE[:, here])
        if is_whole:
            made[here] = rows[(num_blocks - 1) // 2]
            continue
        kept = rows[num_trimmed : num_blocks - num_trimmed]
        total = kept[0].astype(np.float64)
        for row in kept[1:]:
            total += row
        total /= len(kept)
        made[here] = to_float32(total)
    return made.reshape(shape)


def num_trimmed(num_blocks: int, share: float) -> int:
    """Return how many of K values a share below 1/2 leaves out at each end: its whole part."""
    return math.floor(round(share * num_blocks, 9))


def _stacked(blocks: Iterable[Block], num_blocks: int) -> Block:
    values_KE: Block | None = None
    number = 0
    for number, block in enumerate(blocks, 1):
        if values_KE is None:
            values_KE = np.empty((num_blocks, *block.shape), block.dtype)
        if number > num_blocks or block.shape != values_KE.shape[1:]:
            raise ValueError(
                f"{num_blocks} blocks of the shape {values_KE.shape[1:]}, not {block.shape} as number {number}"
            )
        # -0 becomes 0: the two are equal, so their order would be that of the clients.
        np.add(block, block.dtype.type(0), out=values_KE[number - 1])
    if values_KE is None or number < num_blocks:
        raise ValueError(f"{num_blocks} blocks are needed, not {number}")
    return values_KE


def _ascending(values_KE: Block) -> Sequence[Block]:
    """Return the rows of the values with each column in ascending order; the values may be changed."""
    num_blocks = len(values_KE)
    if num_blocks > MOST_IN_NETWORK:
        return list(np.ascontiguousarray(np.sort(np.ascontiguousarray(values_KE.T), axis=1).T))
    rows, spare = list(values_KE), np.empty_like(values_KE[0])
    for low, high in comparisons(num_blocks):
        np.minimum(rows[low], rows[high], out=spare)
        np.maximum(rows[low], rows[high], out=rows[high])
        rows[low], spare = spare, rows[low]
    return rows


def comparisons(count: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of places that, put in order one after the other, sort as many values.

    Batcher's merge exchange: Knuth, The Art of Computer Programming, vol. 3, 5.2.2, algorithm M.
    """
    if count < 2:
        return
    top = 1 << ((count - 1).bit_length() - 1)
    step = top
    while step:
        reach, offset, distance = top, 0, step
        while True:
            for low in range(count - distance):
                if low & step == offset:
                    yield low, low + distance
            if reach == step:
                break
            distance, reach, offset = reach - step, reach >> 1, step
        step >>= 1
