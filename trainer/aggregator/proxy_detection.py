"""Detection of a proxy that breaks idle streams.

The sign: streams break at the same idle age several times in a row, and each time the aggregator answers at once.

Pure: times are arguments, in seconds of a monotonic clock.
"""

from __future__ import annotations

NUM_BREAKS = 3
"""Number of breaks in a row that count as evidence."""
LEAST_AGE_S = 0.5
"""Streams that break sooner were not idle."""
SPREAD = 0.25
"""Largest difference between the idle ages, as a fraction of the longest: a proxy checks its streams only now and then."""


class ProxyDetector:
    """Idle ages of the latest streams that broke without a reason."""

    def __init__(self) -> None:
        self._ages_s: list[float] = []
        self._received_at: float | None = None
        self._has_reported = False

    def received(self, now: float) -> None:
        """Record that a message came over the stream."""
        self._received_at = now

    def ended(self) -> None:
        """Record that the stream ended with a reason: earlier breaks had another cause."""
        self._ages_s, self._received_at = [], None

    def broke(self, now: float) -> None:
        """Record that the stream broke, or could not be opened.

        Where it could not be opened, the aggregator was away: that explains the earlier breaks too.
        """
        if self._received_at is None:
            self.ended()
        else:
            self._ages_s = [*self._ages_s, now - self._received_at][-NUM_BREAKS:]
            self._received_at = None

    def joined(self) -> float | None:
        """Record that the aggregator answers; returns, once, the idle seconds after which a proxy breaks streams."""
        if self._has_reported or len(self._ages_s) < NUM_BREAKS:
            return None
        shortest, longest = min(self._ages_s), max(self._ages_s)
        if shortest < LEAST_AGE_S or longest - shortest > SPREAD * longest:
            return None
        self._has_reported = True
        return longest
