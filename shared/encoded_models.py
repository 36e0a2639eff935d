"""Encoded models: a model's difference from the one that a round began with, in fewer bytes than float32. Pure.

Tensors of two or more dimensions are encoded; vectors (biases, BatchNorm layers and their statistics) and integers travel
as they are. A row is what one index of the first dimension holds, `MAX_ROW` numbers at most. A file is the 8 bytes of
`MAGIC` and of the precision's code, then tensor by tensor, in the order of the model's file, block by block:

    bfloat16    the upper 16 bits of each float32, rounded to the nearest, ties to even
    int8        a scale of each row of the block, float32, then -127 to 127 for each number: the difference is their product

Layout and size follow from the model's layout, so a file has no header that could lie. Encoding rounds the same way always:
equal models give equal bytes, on any machine (docs/algorithms.md, rule 1.23).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.tensors import DTYPES, Array, Schema, TensorEntry, TensorTable

Precision = Literal["float32", "bfloat16", "int8"]
Float64 = npt.NDArray[np.float64]
ReadBlock = Callable[[TensorEntry, int, int], Array]
"""`(tensor, first, count) -> numbers` of a model: `count` elements behind the `first` ones, asked for in file order."""

MAGIC = b"fedplcc"
CODES: dict[str, int] = {"bfloat16": 1, "int8": 2}
"""Last byte of a file's beginning, by precision."""
MAX_ROW = 1 << 16
"""Numbers that share a scale at most: a longer row is cut."""
BLOCK_ELEMENTS = 1 << 18
"""Numbers that are encoded at a time, but for whole rows; part of the format."""
STEPS = 127
"""Steps of int8 on each side of 0."""
LARGEST = float(np.finfo(np.float32).max)
MAX_SCALE = LARGEST / STEPS
_LARGEST_BFLOAT16 = np.float32(3.3895313892515355e38)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A block of a model: its bytes in the file, what they are decoded to, and what it was."""

    entry: TensorEntry
    data: bytes
    model: Array
    target: Array


def is_encoded(dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor travels encoded."""
    return dtype == "F32" and len(shape) >= 2


def encoded_size(schema: Schema, precision: Precision) -> int:
    """Return the size in bytes of an encoded model."""
    size = len(MAGIC) + 1
    for name, (dtype, shape) in schema.items():
        entry = TensorEntry(name=name, dtype=dtype, shape=shape, begin=0, end=0)
        size += sum(_num_bytes(entry, count, precision) for _first, count in _blocks(entry))
    return size


def encoding(
    table: TensorTable, precision: Precision, read: Callable[[TensorEntry, int, int], tuple[Array, Array]]
) -> Iterator[Piece]:
    """Yield the blocks of a file, which begins with `beginning`.

    Args:
        read: `(tensor, first, count) -> (model, start)`: a block of the model to encode, float64 with the error that is fed
            back where the tensor is encoded, and the same block of the model that the round began with.
    """
    for entry in table.entries:
        width = _width(entry)
        for first, count in _blocks(entry):
            target, start = read(entry, first, count)
            if not is_encoded(entry.dtype, entry.shape):
                raw = np.ascontiguousarray(target, DTYPES[entry.dtype])
                yield Piece(entry=entry, data=raw.tobytes(), model=raw, target=raw)
                continue
            begin = start.astype(np.float64)
            data = _encoded(target - begin, width, precision)
            model = _moved(begin, _decoded(data, count, width, precision))
            yield Piece(entry=entry, data=data, model=model, target=target)


def beginning(precision: Precision) -> bytes:
    """Return the first bytes of a file."""
    return MAGIC + bytes([CODES[precision]])


def decoding(
    table: TensorTable, precision: Precision, read: Callable[[int], bytes], start: ReadBlock
) -> Iterator[Array]:
    """Yield the blocks of the model of a file, in the order of the model's file.

    Args:
        read: Returns the next bytes of the file; its size is `encoded_size`.
        start: The model that the round began with.

    Raises:
        MalformedUpdate: check is "encoding": another code, a scale that is none, or fewer bytes.
    """
    if _whole(read, len(MAGIC) + 1) != beginning(precision):
        raise refused(f"the encoded model does not begin with the code of {precision}")
    for entry in table.entries:
        for first, count in _blocks(entry):
            data = _whole(read, _num_bytes(entry, count, precision))
            if not is_encoded(entry.dtype, entry.shape):
                yield np.frombuffer(data, DTYPES[entry.dtype])
                continue
            begin = start(entry, first, count).astype(np.float64)
            yield _moved(begin, _decoded(data, count, _width(entry), precision))


def refused(detail: str) -> MalformedUpdate:
    """Return the refusal of an encoded model."""
    return MalformedUpdate(detail, check="encoding")


def _whole(read: Callable[[int], bytes], num_bytes: int) -> bytes:
    data = read(num_bytes)
    if len(data) != num_bytes:
        raise refused("the encoded model ends too early")
    return data


def _moved(begin: Float64, step: Float64) -> Array:
    """Return begin + step as float32; rounding leads out of no range."""
    return np.clip(begin + step, -LARGEST, LARGEST).astype("<f4")


def _width(entry: TensorEntry) -> int:
    """Return how many numbers share a scale; 1 where none do."""
    if not is_encoded(entry.dtype, entry.shape):
        return 1
    return max(1, min(entry.num_elements // max(entry.shape[0], 1), MAX_ROW))


def _blocks(entry: TensorEntry) -> Iterator[tuple[int, int]]:
    """Yield the first element and the number of elements of each block, of whole rows where rows are encoded."""
    width = _width(entry)
    step = max(1, BLOCK_ELEMENTS // width) * width
    for first in range(0, entry.num_elements, step):
        yield first, min(step, entry.num_elements - first)


def _num_bytes(entry: TensorEntry, count: int, precision: Precision) -> int:
    if not is_encoded(entry.dtype, entry.shape):
        return count * DTYPES[entry.dtype].itemsize
    return 2 * count if precision == "bfloat16" else 4 * -(-count // _width(entry)) + count


def _encoded(difference: Float64, width: int, precision: Precision) -> bytes:
    if precision == "bfloat16":
        exact = np.clip(difference, -_LARGEST_BFLOAT16, _LARGEST_BFLOAT16).astype("<f4")
        bits = exact.view("<u4")
        upper: npt.NDArray[np.uint16] = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        return upper.tobytes()
    largest = np.maximum.reduceat(np.abs(difference), np.arange(0, len(difference), width))
    scales = np.minimum(largest / STEPS, MAX_SCALE).astype("<f4")
    wide = _of_rows(scales, len(difference), width)
    ratio = np.divide(difference, wide, out=np.zeros_like(difference), where=wide > 0)
    steps = np.clip(np.rint(ratio), -STEPS, STEPS).astype(np.int8)
    return bytes(scales.tobytes() + steps.tobytes())


def _decoded(data: bytes, count: int, width: int, precision: Precision) -> Float64:
    """Return the differences of a block."""
    if precision == "bfloat16":
        bits = np.frombuffer(data, "<u2").astype("<u4") << 16
        numbers: Any = bits.view("<f4")
        if not np.isfinite(numbers).all():
            raise refused("the encoded model has a number that is not finite")
        return np.asarray(numbers, np.float64)
    scales = np.frombuffer(data, "<f4", -(-count // width))
    if not (np.isfinite(scales).all() and (scales >= 0).all() and (scales <= np.float32(MAX_SCALE)).all()):
        raise refused(f"the encoded model has a scale that is not between 0 and {MAX_SCALE:.4g}")
    steps = np.frombuffer(data, np.int8, count, scales.nbytes)
    if (steps < -STEPS).any():
        raise refused(f"the encoded model has a step beyond {STEPS}")
    return steps * _of_rows(scales, count, width)


def _of_rows(scales: Array, count: int, width: int) -> Float64:
    return np.repeat(scales.astype(np.float64), width)[:count]
