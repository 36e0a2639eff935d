"""Token buckets: how often each of many callers may do something. Memory is bounded whatever strangers do."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

MAX_BUCKETS = 10_000
"""Most callers that are remembered; beyond it the one that came longest ago is forgotten, and begins anew."""


class TokenBuckets:
    """A bucket for each caller: it holds `most` tokens at first and at most, and `per_s` come back each second."""

    def __init__(self, per_s: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._most, self._clock = per_s, most, clock
        self._held: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """Tokens by caller and the time for which that is right, in the order of the last call."""

    def take(self, caller: Hashable) -> float:
        """Take a token if there is one; returns 0, or the seconds until there is one."""
        tokens = self._tokens(caller)
        is_there = tokens >= 1
        self._keep(caller, tokens - is_there)
        return 0.0 if is_there else (1 - tokens) / self._per_s

    def wait_s(self, caller: Hashable) -> float:
        """Return 0 if there is a token, else the seconds until there is one; takes none."""
        tokens = self._tokens(caller)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_s

    def _tokens(self, caller: Hashable) -> float:
        tokens, since = self._held.get(caller, (self._most, self._clock()))
        return min(self._most, tokens + (self._clock() - since) * self._per_s)

    def _keep(self, caller: Hashable, tokens: float) -> None:
        self._held[caller] = (tokens, self._clock())
        self._held.move_to_end(caller)
        if len(self._held) > MAX_BUCKETS:
            self._held.popitem(last=False)
