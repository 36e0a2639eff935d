"""One task with everything that it needs, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from shared.config.run import DataSection, RunConfig
from shared.types import Client, ClientActivity, ClientProblem, RunSpec, Task
from trainer.aggregator.port import AggregatorPort
from trainer.cancellation import ShouldStop, check
from trainer.learning.device_images import DeviceImages

OnActivity = Callable[[ClientActivity, float], None]
"""Told what the task is at, and which fraction of that is done."""
OnProblem = Callable[[ClientProblem], None]
"""Told what the operator of the data should know although the task goes on."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loaded:
    """The client's data under one run's data contract."""

    contract: DataSection
    seed: int
    class_counts: tuple[int, ...]
    train: DeviceImages
    test: DeviceImages


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One task with everything that it needs."""

    task: Task
    run: RunSpec
    config: RunConfig
    client: Client
    """As it takes part in the run."""
    loaded: Loaded
    aggregator: AggregatorPort
    should_stop: ShouldStop
    on_activity: OnActivity
    on_problem: OnProblem
    timings: dict[str, float] = field(default_factory=dict)

    def begin(self, activity: ClientActivity) -> None:
        """Say what comes next, unless the task is not wanted any more."""
        check(self.should_stop)
        self.on_activity(activity, 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the block's seconds to the task's timings."""
        begin = perf_counter()
        yield
        self.timings[name] = self.timings.get(name, 0.0) + perf_counter() - begin
