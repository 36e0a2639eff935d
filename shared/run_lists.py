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
    STATUS = "status"
    """By status; runs that are stopping are among those that run."""
    METHOD = "method"
    """By method."""
    ROUNDS = "rounds"
    """By number of rounds, most first."""
    MEAN = "mean"
    """By mean score, best first."""
    WORST = "worst"
    """By the worst domain's score, best first."""
    TOOK = "took"
    """By time from creation to the end, longest first."""


RISING_ORDERS = frozenset((RunOrder.OLDEST, RunOrder.NAME, RunOrder.STATUS, RunOrder.METHOD))
"""Orders that begin with the least value; the others begin with the greatest."""
SCORE_ORDERS = frozenset((RunOrder.MEAN, RunOrder.WORST))
"""Orders by what a run's last evaluated round came to."""
MAX_BY_SCORE = 2000
"""Most runs that a list sorts by their scores: each one's is read from the line of a round."""


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


BEYOND = 1e300
"""Greater than any value that runs are sorted by."""


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
    is_reversed: bool = False
    """Whether the order is turned round. Runs without a value come last in either direction."""
    after: RunCursor | None = None
    limit: int = 50

    @property
    def rises(self) -> bool:
        """Whether the list begins with the least value."""
        return (self.order in RISING_ORDERS) != self.is_reversed

    @property
    def without_value(self) -> float:
        """Stands for the value of a run that has none: beyond all others, so that it comes last."""
        return BEYOND if self.rises else -BEYOND


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

    def cursor(self, query: RunQuery) -> RunCursor:
        """Return its place in the list of a query."""
        took = self.updated_at - self.created_at if self.status.is_final else None
        values: dict[RunOrder, float | str | None] = {
            RunOrder.UPDATED: self.updated_at,
            RunOrder.NAME: self.name,
            RunOrder.STATUS: RunStatus.RUNNING.value if self.status is RunStatus.STOPPING else self.status.value,
            RunOrder.METHOD: self.method,
            RunOrder.ROUNDS: float(self.total_rounds),
            RunOrder.MEAN: self.mean_accuracy,
            RunOrder.WORST: self.worst_accuracy,
            RunOrder.TOOK: took,
        }
        value = values.get(query.order, self.created_at)
        return RunCursor(query.without_value if value is None else value, self.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """Runs that match a query, and how many there are."""

    runs: Sequence[RunSummary]
    totals: Mapping[RunStatus, int] = field(default_factory=dict)
    """How many runs match all filters but the statuses, for each of `COUNTED_STATUSES`."""
    total: int = 0
    """How many runs match all filters, on all pages."""
