"""Growth of a piece of work with its input, measured in processor time: what a shared machine does not change."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

MOST_A_DOUBLING = 3.0
"""Largest factor of the time when the input doubles: linear work has 2, quadratic work 4."""
LEAST_S = 0.02
"""Shortest time that is compared; a shorter one counts as this long, as it says nothing about growth."""
ROUNDS = 8
"""Most rounds of measurements; the smallest time of each input counts."""

Input = TypeVar("Input")


def factors(seconds: Sequence[float]) -> list[float]:
    """Return the factor from each time to the next."""
    counted = [max(each, LEAST_S) for each in seconds]
    return [after / before for before, after in pairwise(counted)]


def require_linear(
    work: Callable[[Input], object], inputs: Sequence[Input], clock: Callable[[], float] = time.thread_time
) -> None:
    """Check that the time at most triples from each input to the next, which is twice as large.

    Inputs are measured in turn until the smallest times agree, for `ROUNDS` rounds at most: processors have caches, too.

    Args:
        work: The work.
        inputs: Inputs, each twice as large as the one before.
        clock: Processor time that the work takes: this thread's, unless others do it.
    """
    seconds = [math.inf] * len(inputs)
    for _ in range(ROUNDS):
        for index, given in enumerate(inputs):
            begin = clock()
            work(given)
            seconds[index] = min(seconds[index], clock() - begin)
        if max(factors(seconds)) <= MOST_A_DOUBLING:
            return
    raise AssertionError(f"seconds for inputs that double: {seconds}")
