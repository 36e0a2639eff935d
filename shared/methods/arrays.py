"""Arrays by name in host memory: models, what clients keep, and small groups with a declared schema.

Shape legend: M classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[Any]
"""A piece of one tensor, flattened: float32, or int64 for integer buffers."""
ModelArrays = Mapping[str, npt.NDArray[Any]]
"""Whole model: float32 or int64 arrays in host memory, by tensor name."""
ClientState = Mapping[str, npt.NDArray[Any]]
"""State that a client keeps between its updates: float32 or int64 arrays by name. It never leaves the client."""
ArrayGroup = Mapping[str, npt.NDArray[Any]]
"""float32 or int64 arrays by name."""
Shape = tuple[int | None, ...]
"""Sizes of an array; None is free: from 0 to the number of classes, and the same throughout a group."""
GroupSchema = Mapping[str, tuple[str, Shape]]
"""Dtype, "F32" or "I64", and shape of each array of a group, by name."""

MAX_ARRAY_BYTES = 2**26
"""Largest size of all server arrays of a run together, and of all groups that an update has beside its model: 64 MiB."""


def most_bytes(groups: Mapping[str, GroupSchema], num_classes: int) -> int:
    """Return the size of all groups' arrays where every free size is the number of classes M."""
    sizes = {"F32": 4, "I64": 8}
    return sum(
        sizes[dtype] * math.prod(num_classes if size is None else size for size in shape)
        for schema in groups.values()
        for dtype, shape in schema.values()
    )


def group_fault(arrays: ArrayGroup, schema: GroupSchema, num_classes: int) -> tuple[str, str, str] | None:
    """Return what is wrong with a group: the check's name, the array, the sentence. None where it is as declared.

    The check is "keys" for an array that is missing or foreign, "dtype", "shape" or "finite".
    """
    for name in sorted(schema.keys() - arrays.keys()):
        return "keys", name, f"lacks tensor {name!r}"
    for name in sorted(arrays.keys() - schema.keys()):
        return "keys", name, f"has a tensor {name!r} that is not declared"
    free: int | None = None
    for name, (dtype, shape) in schema.items():
        array = arrays[name]
        if array.dtype != (np.float32 if dtype == "F32" else np.int64):
            return "dtype", name, f"has a tensor {name!r} that is not {dtype}"
        wanted = ["free" if size is None else size for size in shape]
        if array.ndim != len(shape):
            return "shape", name, f"has a tensor {name!r} of shape {list(array.shape)}, not {wanted}"
        for size, found in zip(shape, array.shape, strict=True):
            free = found if size is None and free is None else free
            if found != (free if size is None else size) or found > max(num_classes, size or 0):
                return "shape", name, f"has a tensor {name!r} of shape {list(array.shape)}, not {wanted}"
        if not np.isfinite(array).all():
            return "finite", name, f"has a tensor {name!r} with a value that is NaN or infinite"
    return None
