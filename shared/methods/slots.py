"""Slots: arrays that the server keeps from round to round, one element for each trainable element of the model.

A method names them in `Method.server_slots` and folds them block by block together with the model in `Method.slot_fold`.
What round t - 1 committed is what round t reads; a slot that is not there yet is its first value everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from shared.methods.public import PUBLIC

if TYPE_CHECKING:
    from shared.methods.base import Block, MethodConfig


SLOT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
"""Form of a slot's name."""
RESERVED = frozenset({"model", "prototypes", "start", PUBLIC})
"""Names of a round's other results, and of the group of arrays about public images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """Facts about the run that a slot fold may read."""

    round: int
    num_eligible: int
    """Clients of the roster that may take part in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """Facts about the run and one client of it that the numbers beside its task may depend on."""

    round: int
    num_examples: int
    """Training samples of the client, as it said when it was admitted to the run; so are those of the others."""
    mean_examples: float
    """Mean number of samples of the clients that may take part in this round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedBlock:
    """Blocks that a slot fold makes of one piece of the model, each float32 and as long as that piece."""

    result: Block
    """Of the round's model, which is evaluated and fetched."""
    slots: Mapping[str, Block]
    """By name, the same names as came in."""
    start: Block | None = None
    """Of the model that the next round starts from, where `Method.has_start` says that this is not the result."""


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


def no_slots(config: MethodConfig) -> Mapping[str, float]:
    """Return no slot, whatever the configuration."""
    return {}
