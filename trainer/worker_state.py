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
    """Each activity and when it began, for the task's trace; of many the first."""

    def change(self, activity: ClientActivity) -> None:
        """Begin another activity."""
        self.activity = activity
        if traces.is_on() and len(self.begun) < traces.MAX_PARTS:
            self.begun.append((activity, time.time()))


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
