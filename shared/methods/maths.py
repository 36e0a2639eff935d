"""Arithmetic on blocks of tensors: pure numpy and elementwise, so the bytes do not depend on the size of the blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[Any]


def weighted_mean(blocks: Iterable[Block], weights: Sequence[float]) -> Block:
    """Return sum_k w_k x_k / sum_k w_k, summed in the order given.

    Floats are summed in float64 and rounded once to float32; with whole weights below 2^29 every product is exact.
    For integers (BatchNorm's counters), whose mean is meaningless, the elementwise maximum is returned.

    Args:
        blocks: K arrays of one shape and dtype, float32 or int64; read once, one at a time.
        weights: K positive, finite numbers.

    Raises:
        ValueError: No block, a weight that is not positive and finite, another number of weights than blocks, or blocks
            of several shapes.
    """
    mean = unrounded_mean(blocks, weights)
    return mean if np.issubdtype(mean.dtype, np.integer) else mean.astype(np.float32)


def unrounded_mean(blocks: Iterable[Block], weights: Sequence[float]) -> Block:
    """Return the mean of floats as float64, before it is rounded; else as `weighted_mean`."""
    if not weights or not all(0 < weight < math.inf for weight in weights):
        raise ValueError("weights must be positive and finite, and at least one")
    total: Block | None = None
    product: Block | None = None
    for block, weight in zip(blocks, weights, strict=True):
        is_integer = np.issubdtype(block.dtype, np.integer)
        if total is None or product is None:
            total = block.copy() if is_integer else block.astype(np.float64)
            if not is_integer:
                total *= weight
            product = np.empty_like(total)
        elif block.shape != total.shape:
            raise ValueError(f"blocks must have one shape, not {total.shape} and {block.shape}")
        elif is_integer:
            np.maximum(total, block, out=total)
        else:
            # Convert first, then multiply in place: a ufunc that converts its input works in small, slow pieces.
            product[...] = block
            product *= weight
            total += product
    assert total is not None
    if np.issubdtype(total.dtype, np.integer):
        return total
    total /= float(sum(weights))
    return total


def to_float32(values: Block) -> Block:
    """Round float64 values to float32 once; one beyond its range becomes the largest finite one of its sign."""
    largest = float(np.finfo(np.float32).max)
    return np.asarray(np.clip(values, -largest, largest), dtype=np.float32)
