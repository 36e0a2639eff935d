"""Server arrays: small named arrays that the server keeps from round to round, and makes in one step after the fold.

A method declares them in `Method.server_arrays`, group by group, and makes them in `Method.server_step` of what the round
before left, of what clients uploaded beside their models, and of the head of the folded model. Groups that `Method.sends`
names go to clients with the task of training. All of them are given whole, so their size has a limit.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from shared.types import FloatArray, IntArray

if TYPE_CHECKING:
    from shared.methods.base import MethodConfig

ArrayGroup = Mapping[str, npt.NDArray[Any]]
"""float32 or int64 arrays by name."""
Shape = tuple[int | None, ...]
"""Sizes of an array; None is free: from 0 to the number of classes, and the same throughout a group."""
GroupSchema = Mapping[str, tuple[str, Shape]]
"""Dtype, "F32" or "I64", and shape of each array of a group, by name."""

MAX_ARRAY_BYTES = 2**26
"""Largest size of all server arrays of a run together, and of all groups that an update has beside its model: 64 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTraining:
    """A client's samples under the received model, before it trains."""

    features_ND: FloatArray
    """In evaluation mode, without augmentation."""
    labels_N: IntArray
    num_classes: int
    head: ArrayGroup
    """Tensors of the received model's head, by name."""
    received: Mapping[str, ArrayGroup]
    """Server arrays that came with the task, by group; none before the first aggregation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRound:
    """Inputs of a server's step."""

    round: int
    seed: int
    """Of the run."""
    num_classes: int
    feature_dim: int
    uploads: Iterable[Mapping[str, ArrayGroup]]
    """What the cohort's updates have beside the model, by group, in client-id order; they come one at a time and once."""
    arrays: Mapping[str, ArrayGroup]
    """Server arrays as the round before left them, by group; none in the first round."""
    start_head: ArrayGroup
    """Head of the model that clients started this round from, by tensor name."""
    head: ArrayGroup
    """Head of the folded model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerResult:
    """What a server's step makes."""

    arrays: Mapping[str, ArrayGroup]
    """All groups that the method declares."""
    head: ArrayGroup | None = None
    """Head that the round's model gets in place of the folded one, where `Method.has_start`: the next round starts from the
    folded model then."""


class ServerStep(Protocol):
    """Step of the server after the fold."""

    def __call__(self, step: ServerRound, config: Any, /) -> ServerResult:
        """Return the new arrays; pure, and the same bytes on any machine."""


class DeclaredGroups(Protocol):
    """Declaration of groups of arrays."""

    def __call__(self, config: Any, num_classes: int, feature_dim: int, /) -> Mapping[str, GroupSchema]:
        """Return the schema of each group by its name."""


class UploadFault(Protocol):
    """Check of what an update has beside its model."""

    def __call__(self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Any, /) -> str | None:
        """Return the sentence for what is wrong with it; None where nothing is. Schema and finiteness hold already."""


def no_groups(config: MethodConfig, num_classes: int, feature_dim: int) -> Mapping[str, GroupSchema]:
    """Return no group, whatever the configuration."""
    return {}


def sends_nothing(config: MethodConfig) -> tuple[str, ...]:
    """Return no group, whatever the configuration."""
    return ()


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
