"""Server slots: arrays that the server keeps from round to round, one element for each trainable element of the model.

They are folded block by block together with the model. What round t - 1 committed is what round t reads; a slot that is not
there yet is its first value everywhere. Clients have no half in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.parts.part import Part, never
from fedplcc.shared.methods.parts.public import PUBLIC

SLOT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
"""Form of the name of a slot or a group of server arrays."""
RESERVED = frozenset({"model", "prototypes", "start", PUBLIC})
"""Names of a round's other results, and of the group of arrays about public images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """Facts about the run that a slot fold may read."""

    round: int
    num_eligible: int
    """Clients of the roster that may take part in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedBlock:
    """Blocks that a slot fold makes of one piece of the model, each float32 and as long as that piece."""

    result: Block
    """Of the round's model, which is evaluated and fetched."""
    slots: Mapping[str, Block]
    """By name, the same names as came in."""
    start: Block | None = None
    """Of the model that the next round starts from, where `ServerSlots.has_start` says that this is not the result."""


class SlotFold(Protocol):
    """Fold of one piece of the trainable parameters together with its slots."""

    def __call__(
        self,
        start_block: Block,
        update_blocks: Iterable[Block],
        weights: Sequence[float],
        slot_blocks: Mapping[str, Block],
        view: ServerView,
        config: Any,
        /,
    ) -> FoldedBlock:
        """Return the new blocks. Elementwise, so any cutting gives the same bytes.

        Args:
            start_block: Of the model that clients started this round from.
            update_blocks: Of the cohort's models, in client-id order; they come one at a time and may be read once.
            weights: Of the clients, as `fold_weights` has them.
            slot_blocks: Of each slot as the round before left it, float32, by name.
            view: Facts about the run.
            config: Hyper-parameters.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSlots(Part):
    """Slots of a method's server.

    Attributes:
        first_values: `config -> {name: first value}`. Where there are none, the method's `fold` alone makes the model, and
            nothing is kept.
        fold: Fold of the trainable parameters together with their slots; all else of the model goes through `Method.fold`.
        has_start: `config -> bool`: whether the next round starts from another model than the result.
    """

    first_values: Callable[[Any], Mapping[str, float]]
    fold: SlotFold
    has_start: Callable[[Any], bool] = never
