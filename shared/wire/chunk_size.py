"""Sizes of a transfer's pieces, adapted to the link: a piece takes about half a second at most.

Large pieces cost the least work, but a piece counts only when all of it has arrived. On a slow link a large piece looks like
a transfer without progress, and is lost whole when the connection breaks. A transfer therefore begins with small pieces,
doubles them while they move quickly and halves them when they move slowly.
"""

from __future__ import annotations

FIRST_BYTES, LEAST_BYTES = 1 << 16, 1 << 13
"""Size of a transfer's first piece, and of the smallest, which at 150 bytes/s arrives within the idle limit of 60 s."""
QUICK_S, SLOW_S = 0.1, 0.5
"""A piece that took less than the first doubles the next one; a piece that took more than the second halves it."""
AROUND_BYTES = 64
"""Bytes around a piece in its message. Both together are a power of two, to which the encoder rounds its buffer."""


class ChunkSizes:
    """Sizes of one transfer's pieces."""

    def __init__(self, most_bytes: int) -> None:
        """Start a transfer whose pieces have at most `most_bytes` bytes."""
        self._most_bytes = most_bytes
        self._power = FIRST_BYTES

    @property
    def next_bytes(self) -> int:
        """Size of the next piece."""
        return max(1, min(self._power - AROUND_BYTES, self._most_bytes))

    def record(self, num_bytes: int, seconds: float) -> None:
        """Record how long a piece took.

        A quick piece that is smaller than `next_bytes` (a transfer's last) says nothing about larger ones.
        """
        if seconds > SLOW_S:
            self._power = max(LEAST_BYTES, self._power // 2)
        elif seconds < QUICK_S and num_bytes >= self.next_bytes < self._most_bytes:
            self._power *= 2
