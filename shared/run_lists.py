"""Lists of runs: what people note about a run, the queries of a list, and a run as a list shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fedplcc.shared.reasons import Reason
from fedplcc.shared.scoring.scores import ACCURACY, Score
from fedplcc.shared.types import RoundPhase, RunStatus

OPEN_STATUSES = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)
COUNTED_STATUSES = (*OPEN_STATUSES, RunStatus.COMPLETED, RunStatus.STOPPED, RunStatus.FAILED)
"""Statuses that a list counts; a run that is stopping counts as running."""


class RunOrder(StrEnum):
    """Order of a list; runs that are equal in it are in the order of their ids."""

    NEWEST = "newest"
    """By time of creation, the newest first."""
    OLDEST = "oldest"
    """By time of creation, the oldest first."""
    UPDATED = "updated"
    """By time of the last change, the latest first."""
    NAME = "name"
    """By name."""


class RunShow(StrEnum):
    """Runs that a list shows."""

    CURRENT = "current"
    """Neither archived nor deleted ones."""
    ARCHIVED = "archived"
    """Archived ones that are not deleted."""
    DELETED = "deleted"
    """Deleted ones."""
    ALL = "all"
    """Every run that ever was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLabels:
    """What people note about a run. Nothing of it changes the run's training."""

    tags: tuple[str, ...] = ()
    """Sorted."""
    notes: str = ""
    is_archived: bool = False
    deleted_at: float | None = None
    """When it was deleted, in seconds since the epoch; None if it was not."""


NO_LABELS = RunLabels()
"""Labels of a run about which nobody has noted anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelChange:
    """A change of a run's labels; None leaves what is there."""

    tags: tuple[str, ...] | None = None
    notes: str | None = None
    is_archived: bool | None = None


@dataclass(frozen=True, slots=True)
class RunCursor:
    """Place in a list: after this run, by the value that the list is ordered by, and by its id."""

    value: float | str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """A query for runs; a run matches if it matches every filter."""

    statuses: tuple[RunStatus, ...] = ()
    """Any of these, if there are any. RUNNING has those that are stopping, too."""
    method: str = ""
    name: str = ""
    """A part of its name or id; case does not matter."""
    tags: tuple[str, ...] = ()
    """All of these."""
    since: float | None = None
    """Created then or later, in seconds since the epoch."""
    show: RunShow = RunShow.CURRENT
    order: RunOrder = RunOrder.NEWEST
    after: RunCursor | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in a list."""

    run_id: str
    name: str
    status: RunStatus
    method: str
    round: int
    """The latest round that opened; -1 before round 0."""
    total_rounds: int
    phase: RoundPhase | None
    """Phase of that round; None before round 0, and of a deleted run."""
    num_clients: int
    is_pause_requested: bool
    reason: Reason | None
    created_at: float
    updated_at: float
    config_hash: str
    tags: tuple[str, ...] = ()
    is_archived: bool = False
    is_deleted: bool = False
    score: Score = ACCURACY
    """What the next two are: accuracy, or balanced accuracy."""
    mean_accuracy: float | None = None
    """Of the last committed round that was evaluated, over its domains, 0 to 1."""
    worst_accuracy: float | None = None
    worst_domain: str = ""

    def cursor(self, order: RunOrder) -> RunCursor:
        """Return its place in a list of this order."""
        values: dict[RunOrder, float | str] = {RunOrder.UPDATED: self.updated_at, RunOrder.NAME: self.name}
        return RunCursor(values.get(order, self.created_at), self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """Runs that match a query, and how many there are."""

    runs: Sequence[RunSummary]
    totals: Mapping[RunStatus, int] = field(default_factory=dict)
    """How many runs match all filters but the statuses, for each of `COUNTED_STATUSES`."""
    total: int = 0
    """How many runs match all filters, on all pages."""
