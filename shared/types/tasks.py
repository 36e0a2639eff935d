"""Tasks of trainers, and how they ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from fedplcc.shared.types.payloads import Payload


class TaskKind(StrEnum):
    """Kinds of tasks for a trainer."""

    INIT = "init"
    TRAIN = "train"
    EVALUATE = "evaluate"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """The specification of a run for trainers, the same for every round."""

    run_id: str
    config_json: str
    config_hash: str
    started_by: str = ""
    """Who began the run, in the aggregator's words; nothing is bound to it."""


TaskKey: TypeAlias = tuple[str, int, TaskKind, int]
"""Run (or ""), round and kind of a task, and how often its update was asked for again; equal keys mean the same work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a trainer; a function of the run's state."""

    kind: TaskKind
    run: RunSpec | None = None
    round: int = 0
    total_rounds: int = 0
    payload: Payload = field(default_factory=Payload)
    detail: str = ""
    missing: tuple[str, ...] = ()
    """SHA-256 of blobs of the client's own update of this round that were damaged at the aggregator: it sends them again."""
    times_asked: int = 0
    """How often the client was asked for its update of this round again."""

    @property
    def key(self) -> TaskKey:
        """Key of the work; tasks that differ only in `detail` have equal keys."""
        return (self.run.run_id if self.run else "", self.round, self.kind, self.times_asked)

    @property
    def idle_reasons(self) -> Mapping[str, str]:
        """Reasons why runs of this client have no work for it: an `IdleReason` by run id. Only WAIT has them."""
        return self.payload.metadata if self.kind is TaskKind.WAIT else {}


@dataclass(frozen=True, slots=True)
class Poll:
    """A request for a task other than the known one; the aggregator answers within `hold_s` seconds."""

    known: TaskKey | None
    hold_s: float


@dataclass(frozen=True, slots=True)
class TakenInline:
    """Small blobs that a trainer takes inside tasks: most bytes with one task, and SHA-256 of those that it holds."""

    max_bytes: int
    held: frozenset[str] = frozenset()
