"""A worker of clients: carries out orders with its clients' task runners, and asks its pool for everything else.

The worker keeps the task runners of its clients, and so their data; it makes the runner of a new client from the order. It
works the same way over any link, and ends when the pool is gone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import torch

from fedplcc.shared.methods import add_methods
from fedplcc.shared.process import log
from fedplcc.shared.types import BlobRef, Client, ClientActivity, ClientProblem
from fedplcc.simulation.engine import Site
from fedplcc.simulation.in_process import task_runner
from fedplcc.simulation.messages import Activity, Forget, Link, LinkLost, Perform, Read, Report, ask, outcome
from fedplcc.simulation.worker_process import PipeLink
from fedplcc.trainer.aggregator.port import AggregatorPort
from fedplcc.trainer.data import opened_once
from fedplcc.trainer.reproducibility.determinism import prepare_torch
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.runner import TaskRunner

REPORT_S = 0.1
"""Shortest time between two reports of one activity's progress."""


@dataclass(frozen=True, slots=True)
class Access:
    """The worker's access to kept state and blobs: by files on the pool's machine, over the link elsewhere."""

    states: Callable[[Site, Link], ClientStates]
    """Returns a client's kept state."""
    blob_bytes: Callable[[Any], bytes]
    """Returns the bytes of a blob, from the pool's answer."""


BY_FILES = Access(states=lambda site, link: ClientStates(site.states), blob_bytes=Path.read_bytes)
"""On the pool's machine the worker reads and writes the files themselves."""


class Worker:
    """Carries out the orders that come over a link."""

    def __init__(self, link: Link, access: Access) -> None:
        self._link, self._access = link, access
        self._runners: dict[str, TaskRunner] = {}
        self._latest_model = LatestModel()

    def work(self) -> None:
        """Carry out orders until the pool is gone."""
        with suppress(LinkLost):
            with opened_once():
                while isinstance(order := self._link.receive(), Read):
                    self._carry_out(order)
            while True:
                if isinstance(order, Forget):
                    self._runners.pop(order.client_id, None)
                else:
                    self._carry_out(order)
                order = self._link.receive()

    def _carry_out(self, order: Read | Perform) -> None:
        self._link.send(outcome(lambda: self._read(order) if isinstance(order, Read) else self._perform(order)))

    def _read(self, order: Read) -> Client:
        return self._runner(order.site).client_for(order.spec, self._report_problem)

    def _perform(self, order: Perform) -> None:
        aggregator = cast(AggregatorPort, LinkedAggregator(self._link, self._access.blob_bytes))
        runner, activity = self._runner(order.site), _Activity(self._link)
        runner.perform(order.task, aggregator, on_activity=activity.report, on_problem=self._report_problem)

    def _runner(self, site: Site) -> TaskRunner:
        if site.client_id not in self._runners:
            add_methods(site.consent.methods)
            states = self._access.states(site, self._link)
            self._runners[site.client_id] = task_runner(site, states, self._latest_model)
        return self._runners[site.client_id]

    def _report_problem(self, problem: ClientProblem) -> None:
        self._link.send(Report(problem))


class LinkedAggregator:
    """The aggregator at the other end of a link; what is not here, the pool asks it as it is.

    Only the names of a finished update's blobs travel: the pool finds their bytes in the client's folder, where they are
    staged before delivery.
    """

    retries: int = 0
    max_inline_bytes: int = 0

    def __init__(self, link: Link, blob_bytes: Callable[[Any], bytes]) -> None:
        self._link, self._blob_bytes = link, blob_bytes

    def fetch(self, blob: BlobRef) -> bytes:
        """Return the bytes of a blob of the client's present task."""
        return self._blob_bytes(ask(self._link, "fetch", blob))

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update."""
        ask(self._link, "store", run_id, round_number, blob, is_prototypes)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(ask, self._link, method)


def warm_up(threads: int) -> None:
    """Load what torch loads on first use. All workers do so at the same time, before the first task comes."""
    prepare_torch(threads, torch.device("cpu"))


class _Activity:
    """Reports a client's activity: every new one at once, its progress at most every `REPORT_S`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._activity: ClientActivity | None = None
        self._reported_at = 0.0

    def report(self, activity: ClientActivity, progress: float) -> None:
        """Report it if it is new, or if the last report is old enough."""
        now = time.monotonic()
        if activity is self._activity and now < self._reported_at + REPORT_S:
            return
        self._activity, self._reported_at = activity, now
        self._link.send(Report(Activity(activity.value, progress)))


def main(descriptor: int, threads: int, level: log.Level) -> None:
    """Run a worker for the process at the other end of a pipe."""
    log.set_up(level)
    warm_up(threads)
    Worker(PipeLink(Connection(descriptor)), BY_FILES).work()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])  # type: ignore[arg-type]  # WorkerProcess passes a level
