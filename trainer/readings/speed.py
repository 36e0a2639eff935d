"""Speed of a client's training: duration of its latest mini-batches, and the part spent waiting for their images.

The training loop reports its steps and reads no clock (learning/training.py); the clocks are read here. Training does not
depend on them: a clock that fails is left out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from fedplcc.shared.process.clock import Clock
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.readings import BATCH_SECONDS, DATA_SECONDS, SAMPLES_PER_SECOND

NUM_LATEST = 20
"""Number of mini-batches over which readings are means: a single one varies much, and the first of a process is slow."""
FRESH_S = 60.0
"""Time after the last mini-batch during which its speed is still reported, so that a training shorter than the time between
two scrapes is seen too. Where two mini-batches take longer, that time counts."""

log = get_logger("fedplcc.trainer.readings.speed")


@dataclass(frozen=True, slots=True)
class Step:
    """One mini-batch of local training; `seconds` includes `data_seconds`, which is None where it could not be measured."""

    num_examples: int
    seconds: float
    data_seconds: float | None


class Speed:
    """The latest mini-batches of one client's local training on one device; any thread may read them."""

    def __init__(self, device: torch.device, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._wait: _Wait = _DeviceWait(device) if device.type == "cuda" else _HostWait(clock)
        self._lock = threading.Lock()
        self._latest: deque[Step] = deque(maxlen=NUM_LATEST)
        self._last_at = 0.0

    def watch(self) -> StepWatch:
        """Return a watch for the steps of one local training; one training runs at a time."""
        return StepWatch(self._clock, self._wait, self._add)

    def readings(self) -> dict[str, float]:
        """Return means over the latest mini-batches, by name; nothing where the last one is older than `FRESH_S`."""
        with self._lock:
            steps, age_s = tuple(self._latest), self._clock() - self._last_at
        if not steps or age_s > max(FRESH_S, 2 * steps[-1].seconds):
            return {}
        seconds = sum(step.seconds for step in steps)
        readings = {BATCH_SECONDS.name: seconds / len(steps)}
        if seconds > 0:
            readings[SAMPLES_PER_SECOND.name] = sum(step.num_examples for step in steps) / seconds
        waits = [step.data_seconds for step in steps if step.data_seconds is not None]
        if waits:
            readings[DATA_SECONDS.name] = sum(waits) / len(waits)
        return readings

    def _add(self, step: Step) -> None:
        with self._lock:
            self._latest.append(step)
            self._last_at = self._clock()


class StepWatch:
    """Stopwatch for the steps of one local training, used in its thread."""

    def __init__(self, clock: Clock, wait: _Wait, on_step: Callable[[Step], None]) -> None:
        self._clock, self._wait, self._on_step = clock, wait, on_step
        self._begun_at = clock()
        self._num_examples = 0

    def begin(self) -> None:
        """Start the clock: the first mini-batch is asked for."""
        self._begun_at = self._clock()
        self._wait.begin()

    def has_batch(self, num_examples: int) -> None:
        """Record that the images of the mini-batch are ready."""
        self._num_examples = num_examples
        self._wait.end()

    def done(self) -> Step:
        """Record that the step is done and the next mini-batch is asked for; returns the step."""
        now = self._clock()
        step = Step(self._num_examples, now - self._begun_at, self._wait.seconds())
        self._on_step(step)
        self.begin()
        return step


class _Wait(Protocol):
    """Measures the time that training waits for a mini-batch."""

    def begin(self) -> None:
        """Record that the mini-batch is asked for."""

    def end(self) -> None:
        """Record that it is ready."""

    def seconds(self) -> float | None:
        """Return the time between the two; called after the step."""


class _HostWait:
    """Wait on the processor, which makes the mini-batch and then computes with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_at = self._ended_at = clock()

    def begin(self) -> None:
        self._begun_at = self._ended_at = self._clock()

    def end(self) -> None:
        self._ended_at = self._clock()

    def seconds(self) -> float | None:
        return self._ended_at - self._begun_at


class _DeviceWait:
    """Wait on a GPU, measured by its own clock, from the end of one step to the images of the next.

    The GPU works through its queue behind the host. Work of the host while the GPU still computes is not waiting. The host's
    clock would count the rest of the step before as waiting, because the GPU prepares a mini-batch only after it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._is_broken = False

    def begin(self) -> None:
        self._mark(0)

    def end(self) -> None:
        self._mark(1)

    def seconds(self) -> float | None:
        if self._marks is None:
            return None
        begin, end = self._marks
        try:
            # The loss of the step has been read from the GPU since: both events are past.
            return begin.elapsed_time(end) / 1000 if end.query() else None
        except RuntimeError as error:
            self._give_up(error)
        return None

    def _mark(self, number: int) -> None:
        if self._is_broken:
            return
        try:
            if self._marks is None:
                self._marks = _new_mark(), _new_mark()
            self._marks[number].record(torch.cuda.current_stream(self._device))
        except RuntimeError as error:
            self._give_up(error)

    def _give_up(self, error: RuntimeError) -> None:
        """Stop measuring; if something is wrong with the GPU, training itself fails and says so."""
        self._marks, self._is_broken = None, True
        log.warning("reading_missing", reading=DATA_SECONDS.name, reason=type(error).__name__)


def _new_mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
