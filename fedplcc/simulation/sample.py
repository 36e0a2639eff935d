"""A timed sample of a run's own training, for a forecast of the whole. Nothing of it is kept."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from fedplcc.runs.configuration import local_clients
from fedplcc.simulation.engine import Observers
from fedplcc.simulation.federation import Simulation
from shared.config.run import FederationFile
from shared.documents import Event
from shared.types import ClientActivity
from trainer.cancellation import Cancelled

SAMPLE_S = 20.0
"""Longest training of a sample, in seconds."""
READING_S = 60.0
"""Longest reading of a sample's data, in seconds."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sample measured.

    Attributes:
        seconds: Expected seconds of the whole run on this machine.
        num_rounds: Rounds that were trained to their end; 0 if the sample ended within the first.
    """

    seconds: float
    num_rounds: int


def timed_sample(
    federation: FederationFile,
    *,
    device: str,
    jobs: int | None = 1,
    budget_s: float = SAMPLE_S,
    clock: Callable[[], float] = time.monotonic,
) -> Sample | None:
    """Train the first two rounds of a run, or as much of them as fits into the time; None if not even that is known.

    Args:
        federation: The run and its clients.
        device: Device of all clients.
        jobs: How many clients work at a time, see `make_engine`.
        budget_s: Longest training, in seconds.
        clock: Seconds that pass.

    Raises:
        FedplccError: A client's data, the device or the configuration cannot be used.
    """
    watched = _Watched(clock)
    begun = clock()
    with (
        tempfile.TemporaryDirectory(prefix="fedplcc-sample-") as folder,
        suppress(Cancelled),
        closing(
            Simulation(
                federation,
                Path(folder),
                request_id="sample",
                device=device,
                observers=Observers(on_event=watched.event, on_activity=watched.activity),
                should_stop=lambda: clock() - begun > READING_S,
                jobs=jobs,
            )
        ) as simulation,
    ):
        watched.training_from = clock()
        simulation.run_to_end(lambda: 2 in watched.committed or clock() - watched.training_from > budget_s)
    return watched.sample(federation, begun, jobs or 1)


class _Watched:
    """Times of committed rounds, and of the first client's training."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.training_from = clock()
        self.committed: dict[int, float] = {}
        self._client, self._begun, self._done, self._at = "", 0.0, 0.0, 0.0

    def event(self, event: Event) -> None:
        if event.type == "round_committed" and event.round is not None:
            self.committed.setdefault(event.round, self._clock())

    def activity(self, client_id: str, activity: str, done: float) -> None:
        if activity == ClientActivity.TRAINING.value and self._client in ("", client_id):
            if not self._client:
                self._client, self._begun = client_id, self._clock()
            self._done, self._at = done, self._clock()

    def sample(self, federation: FederationFile, begun: float, jobs: int) -> Sample | None:
        rounds = federation.config.run.rounds
        before = self.training_from - begun  # the data are read, once
        if 1 not in self.committed:
            if self._done <= 0 or self._at <= self._begun:
                return None
            of_a_client = (self._at - self._begun) / self._done
            num_clients = federation.config.run.cohort_size or len(local_clients(federation))
            return Sample(before + rounds * max(1.0, num_clients / jobs) * of_a_client, 0)
        first = self.committed[1] - self.committed.get(0, self.training_from)
        later = self.committed[2] - self.committed[1] if 2 in self.committed else first
        return Sample(before + first + (rounds - 1) * later, len(self.committed.keys() & {1, 2}))
