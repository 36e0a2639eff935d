"""Growth of a piece of work with its input, measured in processor time: what a shared machine does not change."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

MOST_A_DOUBLING = 3.0
"""Largest factor of the time when the input doubles: linear work has 2, quadratic work 4."""
LEAST_S = 0.02
"""Shortest time that is compared; a shorter one counts as this long, as it says nothing about growth."""
ROUNDS = 8
"""Most rounds of measurements; the smallest time of each input counts."""

Input = TypeVar("Input")


class NotLinear(AssertionError):
    """The time grows faster than the input."""


def factor(seconds: Sequence[float]) -> float:
    """Return the mean factor from each time to the next: a single one depends on the processor's caches."""
    mean: float = (seconds[-1] / max(seconds[0], LEAST_S)) ** (1 / (len(seconds) - 1))
    return mean


def require_linear(
    work: Callable[[Input], object], inputs: Sequence[Input], clock: Callable[[], float] = time.thread_time
) -> None:
    """Check that the time at most triples from each input to the next, which is twice as large.

    Inputs are measured in turn until the smallest times agree, for `ROUNDS` rounds at most.

    Args:
        work: The work.
        inputs: Inputs, each twice as large as the one before.
        clock: Processor time that the work takes: this thread's, unless others do it.

    Raises:
        NotLinear: The time grows faster.
    """
    seconds = [math.inf] * len(inputs)
    with _without_cycles():
        for _ in range(ROUNDS):
            for index, given in enumerate(inputs):
                begin = clock()
                work(given)
                seconds[index] = min(seconds[index], clock() - begin)
            if factor(seconds) <= MOST_A_DOUBLING:
                return
    raise NotLinear(f"seconds for inputs that double: {seconds}")


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Keep Python from its search for cycles, which also goes through what other tests left in memory."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
