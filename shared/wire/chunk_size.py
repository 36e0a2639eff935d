"""How large the pieces of a transfer are: what moves in about half a second, whatever the link.

Large pieces cost the least work, but a piece counts only when all of it has arrived: on a slow link a large one is long
no sign of life, is lost whole when the connection breaks, and looks like a transfer that stands still. So a transfer begins
with small pieces, doubles them while they move quickly and halves them when they do not. Nobody has to say how fast a link
is, and it may change.
"""

from __future__ import annotations

FIRST_BYTES, LEAST_BYTES = 1 << 16, 1 << 13
"""Size of a transfer's first piece, and of the smallest, which moves within the limit on standing still at 150 bytes/s."""
QUICK_S, SLOW_S = 0.1, 0.5
"""A piece that took less makes the next one twice as large, one that took more half as large."""
AROUND_BYTES = 64
"""What is around a piece; a power of two with it, because to that the encoder rounds its buffer."""


class Pace:
    """The sizes of one transfer's pieces."""

    def __init__(self, most_bytes: int) -> None:
        """Begin a transfer whose pieces have at most `most_bytes` bytes."""
        self._most_bytes = most_bytes
        self._power = FIRST_BYTES

    @property
    def next_bytes(self) -> int:
        """Size of the next piece."""
        return max(1, min(self._power - AROUND_BYTES, self._most_bytes))

    def moved(self, num_bytes: int, seconds: float) -> None:
        """Take note that a piece of so many bytes took so long to move.

        The last piece of a transfer may be a small one; that it moved quickly says nothing of larger ones.
        """
        if seconds > SLOW_S:
            self._power = max(LEAST_BYTES, self._power // 2)
        elif seconds < QUICK_S and num_bytes >= self.next_bytes < self._most_bytes:
            self._power *= 2
