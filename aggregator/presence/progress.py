"""Progress of a client with its task.

Deadlines depend on progress. Progress is a new task, bytes that move, and a heartbeat that reports a new position; one that
repeats the previous position only renews the lease.

A trainer that crashes at the same batch again and again is busy but never finishes. A client may therefore fall back
`MAX_SETBACKS` times in a task; from then on only a position beyond all earlier ones is progress.
"""

from __future__ import annotations

import math

from shared.types import ClientActivity, TaskKey

MAX_SETBACKS = 4
"""Restarts or retries within one task after which a client still counts as making progress."""

_ORDER = {activity: index for index, activity in enumerate(ClientActivity)}


class Progress:
    """Progress of one client; times are of the caller's monotonic clock."""

    def __init__(self) -> None:
        self.at = -math.inf
        """Time of the last progress."""
        self._task: TaskKey | None = None
        self._position = self._furthest = (0, 0.0)
        self._setbacks = 0

    def record_task(self, task: TaskKey, now: float) -> None:
        """Record the client's task; only a new task is progress."""
        if task != self._task:
            self._task, self._setbacks = task, 0
            self._position = self._furthest = (0, 0.0)
            self.at = now

    def record_report(self, activity: ClientActivity, fraction: float, now: float) -> None:
        """Record the client's activity and the fraction of it that is done."""
        position = (_ORDER[activity], fraction)
        if position < self._position:
            self._setbacks += 1
        if position > self._furthest or (position != self._position and self._may_fall_back):
            self.at = now
        self._position, self._furthest = position, max(position, self._furthest)

    def record_download(self, now: float) -> None:
        """Record bytes sent to the client: progress while it may still fall back, since it may need them again."""
        if self._may_fall_back:
            self.at = now

    def record_upload(self, now: float) -> None:
        """Record new bytes from the client."""
        self.at = now

    @property
    def _may_fall_back(self) -> bool:
        return self._setbacks <= MAX_SETBACKS
