"""Public images: unlabelled images that every client of a run has, by which clients learn from each other.

A client says what its model makes of them, row by row, in a group of arrays beside its update. The server's step makes the
targets of the next round of these groups, in a group of the same schema. Clients then first train on the public images
towards the targets, in fixed batches and order, and after that on their own images.

Shape legend: B batch, D feature size, M classes, n public images of whole batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.arrays import ArrayGroup, GroupSchema
from fedplcc.shared.methods.parts.part import Part, ServerResult, ServerRound
from fedplcc.shared.methods.step import LossTerms, Ops

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
class PublicLearning(Part):
    """Learning from public images.

    Attributes:
        is_used: `config -> bool`: whether a run with this configuration needs public images.
        batch_size: `config -> B`; images of a smaller rest are left out.
        learning_rate: `config -> rate` of Adam, of which each client has a fresh one in each round.
        schema: `(config, M, n) -> schema` of the group; every array has n rows.
        outputs: `(step, config) -> arrays by name`: the rows that a client uploads, of its trained model in evaluation mode.
        loss: `(step, config) -> terms`: minimised on each batch once before a client's own training.
        step: `(step, config) -> result`: makes the targets of the clients' groups.
        fault: `(uploads, class_counts, config) -> sentence`: what else is wrong with a client's group, or None.
    """

    is_used: Callable[[Any], bool]
    batch_size: Callable[[Any], int]
    learning_rate: Callable[[Any], float]
    schema: Callable[[Any, int, int], GroupSchema]
    outputs: Callable[[PublicStep, Any], Mapping[str, Any]]
    loss: Callable[[PublicStep, Any], LossTerms]
    step: Callable[[ServerRound, Any], ServerResult]
    fault: Callable[[Mapping[str, ArrayGroup], Sequence[int], Any], str | None] | None = None

    def keeps_arrays(self, config: Any) -> bool:
        return self.is_used(config)

    def upload_fault(self, uploads: Mapping[str, ArrayGroup], class_counts: Sequence[int], config: Any) -> str | None:
        return None if self.fault is None else self.fault(uploads, class_counts, config)

    def server_step(self, step: ServerRound, config: Any) -> ServerResult:
        return self.step(step, config)
