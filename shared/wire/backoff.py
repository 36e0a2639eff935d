"""Waits between attempts, growing and random."""

from __future__ import annotations

import random
from collections.abc import Iterator


def backoff(rng: random.Random, *, first_s: float = 0.2, most_s: float = 5.0) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end.

    The n-th wait (n from 0) is uniform between half and all of min(first_s * 2^n, most_s). The random half spreads the
    return of many trainers that lost the same aggregator.
    """
    limit = first_s
    while True:
        yield limit * rng.uniform(0.5, 1.0)
        limit = min(2 * limit, most_s)
