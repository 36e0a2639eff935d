"""Rules of a fold: how the models of a round's updates become one (`[aggregation] rule`; docs/algorithms.md, rule 1.22).

A rule takes the place of a method's fold, and of the mean inside a fold with slots: such a fold is given the one model that
the rule made, as if it were the only client's. Rules work elementwise, so any cutting gives the same bytes.

They count each client once, or cap its share: sample counts are their senders' claims. Krum, and whatever else chooses whole
clients, would choose against a domain that has one. A method whose server adds up more than models refuses a rule.

Shape legend: K clients.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedplcc.shared.methods import fedavg
from fedplcc.shared.methods.arrays import Block
from fedplcc.shared.methods.folds import coordinates
from fedplcc.shared.methods.folds.class_medians import with_medians
from fedplcc.shared.methods.maths import to_float32
from fedplcc.shared.methods.method import Method, ReadBlock
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import Part
from fedplcc.shared.methods.parts.slots import FoldedBlock, ServerSlots, ServerView

RuleName = Literal["mean", "clipped_mean", "trimmed_mean", "median"]
BY_COORDINATE = ("trimmed_mean", "median")
"""Rules that look at one number of all clients at a time, and count each client once."""
MOST_ELEMENTS = 1 << 21
"""Most elements of all clients that a rule by coordinates has in memory: 8 MiB of float32."""
LEAST_BLOCK = 1 << 10
"""Fewest elements of a client that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule and what it needs to know of a round.

    Attributes:
        name: Its name; not "mean", which is the method's own fold.
        trim_share: Share of the clients that a trimmed mean leaves out at each end.
        scales: Factor of each client's step in a clipped mean, in client-id order.
    """

    name: RuleName
    trim_share: float = 0.25
    scales: Sequence[float] = ()

    def block_elements(self, num_clients: int, most: int) -> int:
        """Return how many elements of each client are read at a time, at most `most`."""
        return min(most, max(LEAST_BLOCK, MOST_ELEMENTS // num_clients)) if self.name in BY_COORDINATE else most

    def fold(self, read_state: ReadBlock, blocks: Iterable[Block], weights: Sequence[float]) -> Block:
        """Return the block that clients' blocks come to.

        Args:
            read_state: Reads the block of the model that clients started from.
            blocks: K arrays of one shape and dtype, in client-id order, read once.
            weights: Of the clients, for a clipped mean.
        """
        num = len(weights)
        if self.name == "median":
            return coordinates.median(blocks, num)
        if self.name == "trimmed_mean":
            return coordinates.trimmed_mean(blocks, num, coordinates.num_trimmed(num, self.trim_share))
        return clipped_mean(read_state(), blocks, weights, self.scales)


def clip_scales(norms: Sequence[float], clip_to: float | Literal["median"]) -> list[float]:
    """Return the factor, at most 1, by which each client's step is as long as `clip_to` or shorter.

    Norms are rounded to float32 first, since their last bits depend on how they were added up.

    Args:
        norms: Length of each step over all floating-point tensors together.
        clip_to: A length, or the lower median of these.
    """
    rounded = [float(np.float32(min(norm, 3e38))) for norm in norms]
    most = statistics.median_low(rounded) if clip_to == "median" else float(clip_to)
    return [1.0 if norm <= most else most / norm for norm in rounded]


def clipped_mean(start: Block, blocks: Iterable[Block], weights: Sequence[float], scales: Sequence[float]) -> Block:
    """Return w + sum_k n_k s_k (w_k - w) / sum_k n_k in float64, rounded once; of integers the lower median.

    Args:
        start: Block of the model that clients started from.
        blocks: K arrays like it, read once, one at a time.
        weights: K positive, finite numbers.
        scales: K factors from 0 to 1.
    """
    if np.issubdtype(start.dtype, np.integer):
        return coordinates.median(blocks, len(weights))
    begin, total = start.astype(np.float64), np.zeros(start.shape)
    step = np.empty_like(total)
    for block, weight, scale in zip(blocks, weights, scales, strict=True):
        step[...] = block
        step -= begin
        step *= weight * scale
        total += step
    total /= float(sum(weights))
    total += begin
    return to_float32(total)


def with_rule(method: Method, rule: Rule | None) -> Method:
    """Return a method whose fold is the rule's; itself without one. Asked where `rule_refusal` says nothing."""
    if rule is None:
        return method

    def fold(read_state: ReadBlock, blocks: Iterable[Block], weights: Sequence[float], config: Any) -> Block:
        return rule.fold(read_state, blocks, weights)

    return replace(method, fold=fold, parts=tuple(_with_rule(part, rule) for part in method.parts))


def _with_rule(part: Part, rule: Rule) -> Part:
    if isinstance(part, ServerArrays):
        return with_medians(part)
    if not isinstance(part, ServerSlots):
        return part
    own = part.fold

    def fold(
        start: Block,
        blocks: Iterable[Block],
        weights: Sequence[float],
        slots: Mapping[str, Block],
        view: ServerView,
        config: Any,
        /,
    ) -> FoldedBlock:
        made = rule.fold(start.copy, blocks, weights)
        return own(start, [made], [1.0], slots, view, config)

    return replace(part, fold=fold)


def rule_refusal(method: Method, config: Any, name: RuleName) -> str | None:
    """Return why a rule is undefined for a method with these hyper-parameters; None where it is not."""
    if name == "mean":
        return None
    said = f'aggregation.rule = "{name}"'
    sums = method.part(ServerArrays)
    if not method.shares_model(config):
        if sums is None or with_medians(sums) is sums:
            return f'{said} folds models, and in this run of {method.name} clients keep theirs; leave it "mean"'
        if name != "median":
            return f'{said} folds models, and {method.name} adds sums of classes; take "median" or leave it "mean"'
        if getattr(config, "is_chosen", False):
            return f'{said}: method.shrinkage = "chosen" takes folds away from sums, and medians are none; set a number'
        return None
    if method.uses_public(config):
        return f'{said}: the server of {method.name} also averages what is said of public images; leave it "mean"'
    if method.keeps_arrays(config):
        return f'{said}: the server of {method.name} also averages what clients send beside models; leave it "mean"'
    if method.server_slots(config) and method.name != "fedopt":
        return f'{said}: the state of the server of {method.name} is a sum over all clients; leave it "mean"'
    if method.fold is not fedavg.fold:
        return f'{said} takes the place of a mean, and {method.name} has a fold of its own; leave it "mean"'
    if name in BY_COORDINATE and config.averaging == "domain":
        return f'{said} counts each client once, and method.averaging = "domain" weighs them; leave one of the two out'
    return None


def weighs_clients(method: Method, config: Any, name: RuleName) -> bool:
    """Whether clients' sample counts weigh in a round: in the fold of models, or in that of prototypes."""
    of_models = method.shares_model(config) and name not in BY_COORDINATE and config.averaging != "equal"
    return of_models or method.has_prototypes
