"""How far a client has come with its task, and when it last came further.

A deadline follows progress, so what counts as progress decides who is waited for: a task that is handed out, bytes that
move, a heartbeat that says something new. A heartbeat that repeats the one before is a sign of life and nothing more.

A trainer that crashes at the same batch again and again is busy all the time and gets nowhere. So a client may fall back
`MAX_SETBACKS` times in a task; from then on only what it has not reached before is progress.
"""

from __future__ import annotations

import math

from shared.types import ClientActivity, TaskKey

MAX_SETBACKS = 4
"""Times that a client may begin again within one task, by a restart or a retry, and still be getting on."""

_ORDER = {activity: index for index, activity in enumerate(ClientActivity)}


class Progress:
    """One client's progress; times are of the caller's monotonic clock."""

    def __init__(self) -> None:
        self.at = -math.inf
        """When the client last came further."""
        self._task: TaskKey | None = None
        self._position = self._furthest = (0, 0.0)
        self._setbacks = 0

    def given(self, task: TaskKey, now: float) -> None:
        """Note that the client was handed a task; the same one again is nothing new."""
        if task != self._task:
            self._task, self._setbacks = task, 0
            self._position = self._furthest = (0, 0.0)
            self.at = now

    def said(self, activity: ClientActivity, fraction: float, now: float) -> None:
        """Note what the client says it does, and which fraction of that is done."""
        position = (_ORDER[activity], fraction)
        if position < self._position:
            self._setbacks += 1
        if position > self._furthest or (position != self._position and self._may_fall_back):
            self.at = now
        self._position, self._furthest = position, max(position, self._furthest)

    def received(self, now: float) -> None:
        """Note that bytes were sent to the client, which it may need again after a setback."""
        if self._may_fall_back:
            self.at = now

    def sent(self, now: float) -> None:
        """Note that the client sent bytes that were not here before."""
        self.at = now

    @property
    def _may_fall_back(self) -> bool:
        return self._setbacks <= MAX_SETBACKS
