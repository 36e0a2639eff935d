"""Public images: unlabelled images that every client of a run has, by which clients learn from each other.

A client says what its model makes of them, row by row, in a group of arrays beside its update. The server's step makes the
targets of the next round of these groups, in a group of the same schema. Clients then first train on the public images
towards the targets, in fixed batches and order, and after that on their own images.

Shape legend: B batch, D feature size, M classes, n public images of whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared.methods.server_arrays import GroupSchema

if TYPE_CHECKING:
    from shared.methods.base import LossTerms, Ops

PUBLIC = "public"
"""Group of arrays about public images: what clients upload, and the targets that the server keeps and sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicStep:
    """A batch of public images under a client's model."""

    ops: Ops
    features_BD: Any
    logits_BM: Any
    places_B: Any
    """Place of each image in the batch: 0 to B - 1."""
    targets: Mapping[str, Any]
    """Rows of the targets that belong to the batch, by array, as constants; none where outputs are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPart:
    """Part of a method that is about public images.

    Attributes:
        is_used: `config -> bool`: whether a run with this configuration needs public images.
        batch_size: `config -> B`; images of a smaller rest are left out.
        learning_rate: `config -> rate` of Adam, of which each client has a fresh one in each round.
        schema: `(config, M, n) -> schema` of the group; every array has n rows.
        outputs: `(step, config) -> arrays by name`: the rows that a client uploads, of its trained model in evaluation mode.
        loss: `(step, config) -> terms`: minimised on each batch once before a client's own training.
    """

    is_used: Callable[[Any], bool]
    batch_size: Callable[[Any], int]
    learning_rate: Callable[[Any], float]
    schema: Callable[[Any, int, int], GroupSchema]
    outputs: Callable[[PublicStep, Any], Mapping[str, Any]]
    loss: Callable[[PublicStep, Any], LossTerms]
