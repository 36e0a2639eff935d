"""Time in tests."""

from __future__ import annotations


class Clock:
    """Time that moves only when told."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
