"""Progress of a client with its task.

Deadlines depend on progress. Progress is a new task, bytes of a blob that move, and a heartbeat that reports a new position:
another activity, or `LEAST_STEP` of it or of the blob since the last one that counted. A smaller step only renews the lease,
so that a client which makes ever smaller ones holds no round for ever.

A trainer that crashes at the same batch again and again is busy but never finishes. A client may therefore fall back
`MAX_SETBACKS` times in a task, and in each blob; from then on only a position beyond all earlier ones is progress.
"""

from __future__ import annotations

import math

from fedplcc.shared.types import ClientActivity, TaskKey

MAX_SETBACKS = 4
"""Restarts or retries within one task after which a client still counts as making progress."""

LEAST_STEP = 0.001
"""Part of an activity, or of a blob, that counts as progress; smaller ones are added up."""
LEAST_BYTES = 1 << 20
"""Bytes of a blob that count, however large it is."""

_ORDER = {activity: index for index, activity in enumerate(ClientActivity)}


class Progress:
    """Progress of one client; times are of the caller's monotonic clock."""

    def __init__(self) -> None:
        self.at = -math.inf
        """Time of the last progress."""
        self._task: TaskKey | None = None
        self._position = self._furthest = self._counted = (0, 0.0)
        self._setbacks = 0
        self._moved: dict[str, tuple[int, int]] = {}
        """Of each blob up to where its bytes have counted, and how often they fell back."""

    def record_task(self, task: TaskKey, now: float) -> None:
        """Record the client's task; only a new task is progress."""
        if task != self._task:
            self._task, self._setbacks = task, 0
            self._position = self._furthest = self._counted = (0, 0.0)
            self._moved = {}
            self.at = now

    def record_report(self, activity: ClientActivity, fraction: float, now: float) -> None:
        """Record the client's activity and the fraction of it that is done."""
        position = (_ORDER[activity], fraction)
        if position < self._position:
            self._setbacks += 1
        is_step = position[0] != self._counted[0] or abs(fraction - self._counted[1]) >= LEAST_STEP
        if is_step and (position > self._furthest or self._may_fall_back):
            self.at, self._counted = now, position
        self._position, self._furthest = position, max(position, self._furthest)

    def record_bytes(self, blob: str, end: int, size: int, now: float) -> None:
        """Record that a blob has moved up to a byte, on its way to the client or from it.

        Args:
            blob: Names it; of uploads its role, so that another content is no new beginning.
        """
        counted, setbacks = self._moved.get(blob, (0, 0))
        if end <= counted:
            setbacks += 1
        is_step = end - counted >= min(LEAST_STEP * size, LEAST_BYTES) or (end == size and end > counted)
        if is_step or (end <= counted and setbacks <= MAX_SETBACKS):
            self.at, counted = now, end
        self._moved[blob] = (counted, setbacks)

    @property
    def _may_fall_back(self) -> bool:
        return self._setbacks <= MAX_SETBACKS
