"""What a trainer's worker knows of its tasks: the newest, the one in progress, and the last one if it failed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from fedplcc.shared.process import traces
from fedplcc.shared.types import ClientActivity, Task, TaskKey


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
