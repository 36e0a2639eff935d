"""What a trainer's worker knows: of its tasks the newest, the one in progress and a last one that failed; and its lease."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from fedplcc.shared.process import traces
from fedplcc.shared.types import ClientActivity, Membership, Task, TaskKey
from fedplcc.trainer.cancellation import pause

LEAST_GAP_S = 0.1
"""Least time between two heartbeats: a tiny task changes its activity more often than anybody needs to know."""


@dataclass(slots=True, eq=False)
class Work:
    """A task in progress."""

    task: Task
    activity: ClientActivity
    progress: float = 0.0
    is_cancelled: bool = False
    begun: list[tuple[ClientActivity, float]] = field(default_factory=list[tuple[ClientActivity, float]])
    """Each further activity and when it began, for the task's trace; of many the first."""
    first: ClientActivity = field(init=False)

    def __post_init__(self) -> None:
        self.first = self.activity

    def change(self, activity: ClientActivity) -> None:
        """Begin another activity."""
        self.activity = activity
        if traces.is_on() and len(self.begun) < traces.MAX_PARTS:
            self.begun.append((activity, time.time()))

    def trace(self, seconds: float, client_id: str, outcome: str) -> None:
        """Record a task that ended just now as a span of its round, with what it did one after another."""
        assert self.task.run is not None
        span = traces.ended(self.task.kind.value, seconds)
        begun = [(self.first, span.begin), *self.begun]
        ends = [*(begin for _, begin in begun[1:]), span.end]
        parts = [traces.Part(activity.value, begin, end) for (activity, begin), end in zip(begun, ends, strict=True)]
        of = {"client_id": client_id, "outcome": outcome}
        traces.record(span, self.task.run.run_id, self.task.round, parts=parts, facts=of)


@dataclass(slots=True)
class Failure:
    """The last task, if it failed."""

    key: TaskKey
    reason: str
    retry_at: float


@dataclass(slots=True)
class Newest:
    """The newest task, and the number of tasks received up to it."""

    task: Task
    number: int


@dataclass(slots=True)
class Lease:
    """The client's lease, and what the aggregator knows of its work. Any thread may call a method."""

    interval_s: float | None = None
    """Seconds between two heartbeats; None before the first answer to Join."""
    lasts_s: float = 0.0
    renewed_at: float = 0.0
    """When the last call was answered that renewed the lease."""
    num_untold: int = 0
    """Ends of work of which nothing but a heartbeat tells the aggregator."""
    told: int = -1
    """How many of them an idle client has told; -1 after a heartbeat of one at work."""

    @property
    def holds(self) -> bool:
        """Whether the lease has not run out."""
        return time.monotonic() < self.renewed_at + self.lasts_s

    def granted(self, membership: Membership) -> None:
        """Note an answer to Join."""
        self.interval_s, self.lasts_s = membership.heartbeat_interval_s, membership.lease_s
        self.renew(self.told)

    def renew(self, told: int) -> None:
        """Note the answer to a call that leaves the aggregator with this knowledge; see `told`."""
        self.renewed_at, self.told = time.monotonic(), told

    def may_wait(self) -> bool:
        """Whether an idle client's heartbeat may wait for the next turn: it is no news, and half of the lease is left."""
        assert self.interval_s is not None
        half = self.renewed_at + self.lasts_s / 2
        return self.told == self.num_untold and time.monotonic() + self.interval_s < half


class HeartbeatTurns:
    """Turns of heartbeats: at intervals, and soon after somebody asks for one."""

    def __init__(self, is_ending: Callable[[], bool]) -> None:
        """Begin; no turn is waited for once `is_ending` returns true."""
        self._is_ending = is_ending
        # Its `put` may be called from a signal handler that interrupts any code.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ask(self) -> None:
        """Ask for a heartbeat; may be called from a signal handler."""
        self._asked.put(None)

    def wait(self, last: float, interval_s: float, may_settle: Callable[[], bool]) -> None:
        """Wait until a heartbeat is due or asked for; several requests within `LEAST_GAP_S` are answered by one heartbeat.

        The interval starts when the last heartbeat started: on a slow link its answer takes longer than the interval.

        Args:
            last: When that was.
            interval_s: Seconds between two heartbeats.
            may_settle: Whether what was asked for may wait as long: work that is done at once is not told then.
        """
        gap_s = min(LEAST_GAP_S, interval_s)
        with suppress(queue.Empty):
            self._asked.get(timeout=max(0.0, last + interval_s - time.monotonic()))
            since = time.monotonic() if may_settle() else last
            pause(since + gap_s - time.monotonic(), self._is_ending)
            while True:
                self._asked.get_nowait()
