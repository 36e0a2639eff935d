"""A round that is aggregated: what it is made of, and what it has come to so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.folds.rules import Rule, clip_scales
from fedplcc.shared.methods.method import Method
from fedplcc.shared.tensors import TensorTable
from fedplcc.shared.types import BlobRef, PrototypeSet, Run, Update

Blocks = TypeVar("Blocks")


class AggregationObserver(Protocol):
    """Observer of a round's aggregation."""

    def blocks(self, blocks: Iterator[Blocks]) -> Iterator[Blocks]:
        """Yield the blocks of the folded model, and of what is folded with it, unchanged."""

    def folded(self) -> None:
        """Note that the new model is on the disk."""

    def clustered(self) -> None:
        """Note that the new prototypes are computed; their inputs are still in memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundInputs:
    """Inputs of a round's aggregation.

    Attributes:
        block_elements: Elements of a model that are read at a time.
        earlier: Earlier updates whose prototypes are in the pool, by client id and round.
        int_lists: Those of round 0: the feature size, and places of tensors by what they are.
        domains: The domain of each client, for `method.averaging = "domain"`.
    """

    run: Run
    table: TensorTable
    blobs: BlobStore
    block_elements: int
    earlier: Sequence[Update] = ()
    observer: AggregationObserver | None = None
    int_lists: Mapping[str, Sequence[int]] = field(default_factory=dict)
    domains: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return config_of(self.run)

    @property
    def method(self) -> Method:
        """The run's method."""
        return self.config.algorithm

    @property
    def hyper(self) -> MethodConfig:
        """Its hyper-parameters."""
        return self.config.method

    @cached_property
    def updates(self) -> Sequence[Update]:
        """The round's updates in client-id order."""
        assert self.run.current_round is not None
        found = self.run.current_round.updates
        return [found[client_id] for client_id in sorted(found)]

    @cached_property
    def rule(self) -> Rule | None:
        """The rule by which the round's updates become one; None for the mean."""
        section = self.config.aggregation
        if section.rule == "mean":
            return None
        scales: list[float] = []
        if section.rule == "clipped_mean":
            norms = [update.norm for update in self.updates]
            scales = clip_scales([norm for norm in norms if norm is not None], section.clip_to)
            assert len(scales) == len(norms), "the step of each model is measured before it is accepted"
        return Rule(name=section.rule, trim_share=section.trim_share, scales=scales)

    @property
    def start(self) -> Path:
        """The model that clients started the round from."""
        return self.stored(self.run.start or self.run.model)

    def stored(self, blob: BlobRef | None) -> Path:
        """Return the file of a blob that is there.

        Raises:
            PayloadCorrupt: It is missing or damaged.
        """
        assert blob is not None
        return self.blobs.verified_path(blob.sha256)

    def state(self, names: Iterator[str] | Sequence[str]) -> Mapping[str, Path]:
        """Return the file of each part of the server's state, as the round before left it; none that is not there yet."""
        return {name: self.stored(self.run.server_state[name]) for name in names if name in self.run.server_state}

    def observed(self, blocks: Iterator[Blocks]) -> Iterator[Blocks]:
        """Return blocks of the folded model that the observer sees too."""
        return blocks if self.observer is None else self.observer.blocks(blocks)

    def places(self, name: str) -> Sequence[int]:
        """Return round 0's list of this name: places of tensors in the model."""
        return self.int_lists[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMade:
    """What a round has come to so far; its blobs are durable.

    Attributes:
        model: The round's result, which is evaluated and fetched.
        newest: The model that the method came to, before any mean over rounds.
        start: The model that the next round starts from, where that is not the result.
        norms: Sizes of what clients sent beside their models, by what it is and by client.
    """

    model: BlobRef
    newest: BlobRef
    start: BlobRef | None = None
    server_state: Mapping[str, BlobRef] = field(default_factory=dict)
    prototypes: PrototypeSet = field(default_factory=PrototypeSet.empty)
    norms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def names(self, blob: BlobRef) -> bool:
        """Whether a blob's content is in the result, in the next start or in the server's state."""
        return blob.sha256 in {each.sha256 for each in (self.model, self.start, *self.server_state.values()) if each}


def withheld_places(config: RunConfig, int_lists: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """Return the places of the model's tensors that no update has, because clients keep them for themselves."""
    part = config.algorithm.withheld_part(config.method)
    return () if part == "none" else int_lists[part]
