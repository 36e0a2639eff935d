"""Recognises a proxy that cuts what is idle: the task stream broke at the same age again and again, and each time the
aggregator was there at once.

Values in, values out; times are of a monotonic clock, in seconds.
"""

from __future__ import annotations

NUM_CUTS = 3
"""Cuts in a row after which it is no accident."""
LEAST_AGE_S = 0.5
"""Streams that break sooner were not idle."""
SPREAD = 0.25
"""By how much of the longest the ages of such cuts may differ: a proxy looks at its streams only now and then."""


class Cuts:
    """The last streams that broke without a word, by how long nothing had come over them."""

    def __init__(self) -> None:
        self._ages_s: list[float] = []
        self._spoke_at: float | None = None
        self._has_said = False

    def spoke(self, now: float) -> None:
        """Something came over the stream."""
        self._spoke_at = now

    def ended(self) -> None:
        """The stream ended with a reason: what broke before it had another cause."""
        self._ages_s, self._spoke_at = [], None

    def broke(self, now: float) -> None:
        """The stream broke, or there was none: then the aggregator was away, and what broke before had that cause."""
        if self._spoke_at is None:
            self.ended()
        else:
            self._ages_s = [*self._ages_s, now - self._spoke_at][-NUM_CUTS:]
            self._spoke_at = None

    def joined(self) -> float | None:
        """The aggregator is there. Says, once, after how many idle seconds streams are cut if they are again and again."""
        if self._has_said or len(self._ages_s) < NUM_CUTS:
            return None
        shortest, longest = min(self._ages_s), max(self._ages_s)
        if shortest < LEAST_AGE_S or longest - shortest > SPREAD * longest:
            return None
        self._has_said = True
        return longest
