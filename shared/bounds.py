"""Bounds of the numbers and names that others send. A number beyond its bound is refused, as are NaN and infinity."""

from __future__ import annotations

import math

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Client ids, domains, run names and names in certificates."""
MAX_VALUE = 3.4028234663852886e38
"""Largest magnitude of a named number (a loss, a measured time, a scalar, a reading): the largest float32, in which trainers
compute. A sum over any number of clients, each times `MAX_EXAMPLES`, is finite in float64."""
MAX_EXAMPLES = 2**29
"""Most samples of a client, of an update or of an evaluation set: products of counts up to here with float32 values are
exact in float64."""
MAX_FEATURES = 2**24
"""Largest feature size D of a model."""


def is_bounded(value: float) -> bool:
    """Whether a named number is finite and at most `MAX_VALUE` in magnitude."""
    return math.isfinite(value) and abs(value) <= MAX_VALUE
