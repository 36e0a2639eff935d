"""A worker: does one order after another, each by one of its clients' task runners, and asks its crew for the rest.

It is the same whatever is between it and its crew. It keeps the task runners of its clients and so their data; a client that
it does not know yet is made from the order. When the crew is gone it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fedplcc.simulation.engine import Site
from fedplcc.simulation.in_process import task_runner
from fedplcc.simulation.link import Link, LinkLost, PipeLink
from fedplcc.simulation.messages import Answer, Crashed, Failed, Forget, Perform, Read, Told, ask
from shared.errors import FedplccError
from shared.process import log
from shared.types import BlobRef, Client, ClientActivity, ClientProblem, CommittedUpdate, Evaluation, Membership, Update
from trainer.data import opened_once
from trainer.reproducibility.determinism import prepare_torch
from trainer.task.client_state import ClientStates, States
from trainer.task.latest_model import LatestModel
from trainer.task.runner import TaskRunner

TELL_S = 0.1
"""How often a worker says at most how far an activity has come."""


@dataclass(frozen=True, slots=True)
class Means:
    """What is different where a worker is a process beside its crew, and where it is on a machine of its own."""

    states: Callable[[Site, Link], States]
    """Makes what a client keeps."""
    blob_bytes: Callable[[Any], bytes]
    """The bytes of a blob, from what the crew answered."""


BESIDE_THE_CREW = Means(states=lambda site, link: ClientStates(site.states), blob_bytes=Path.read_bytes)
"""On the crew's machine files are read and written where they are."""


class Worker:
    """Does what comes over a link."""

    def __init__(self, link: Link, means: Means) -> None:
        self._link, self._means = link, means
        self._runners: dict[str, TaskRunner] = {}
        self._latest_model = LatestModel()

    def work(self) -> None:
        """Do orders until the crew is gone."""
        try:
            with ExitStack() as beginning:
                beginning.enter_context(opened_once())
                while isinstance(order := self._link.receive(), Read):
                    self._link.send(self._outcome(order))
            while True:
                if isinstance(order, Forget):
                    self._runners.pop(order.client_id, None)
                else:
                    self._link.send(self._outcome(order))
                order = self._link.receive()
        except LinkLost:
            return

    def _outcome(self, order: Read | Perform) -> Answer | Failed | Crashed:
        try:
            if isinstance(order, Read):
                return Answer(self._read(order))
            self._perform(order)
            return Answer()
        except LinkLost:
            raise
        except FedplccError as error:
            return Failed.of(error)
        except (Exception, SystemExit) as error:  # a bug, or somebody's code; the crew says what it was
            return Crashed.of(error)

    def _read(self, order: Read) -> Client:
        return self._runner(order.site).client_for(order.spec, self._tell_problem)

    def _perform(self, order: Perform) -> None:
        coordinator = LinkedCoordinator(self._link, self._means.blob_bytes)
        runner, activity = self._runner(order.site), _Activity(self._link)
        runner.perform(order.task, coordinator, on_activity=activity.tell, on_problem=self._tell_problem)

    def _runner(self, site: Site) -> TaskRunner:
        if site.client_id not in self._runners:
            states = self._means.states(site, self._link)
            self._runners[site.client_id] = task_runner(site, states, self._latest_model)
        return self._runners[site.client_id]

    def _tell_problem(self, problem: ClientProblem) -> None:
        self._link.send(Told(problem=problem))


class LinkedCoordinator:
    """The aggregator at the other end of a link. Of a finished update only the names travel: the crew finds its bytes in
    what the client keeps, where they are staged before they are handed in.
    """

    retries: int = 0

    def __init__(self, link: Link, blob_bytes: Callable[[Any], bytes]) -> None:
        self._link, self._blob_bytes = link, blob_bytes

    def announce(self, client: Client) -> Membership:
        """See `trainer.aggregator.port.AggregatorPort`, as for the others."""
        membership: Membership = ask(self._link, "announce", client)
        return membership

    def fetch(self, blob: BlobRef) -> bytes:
        """The bytes of a blob of the client's present task."""
        return self._blob_bytes(ask(self._link, "fetch", blob))

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update."""
        ask(self._link, "store", run_id, round_number, blob, is_prototypes)

    def commit_update(self, run_id: str, round_number: int, update: Update) -> CommittedUpdate:
        """Make the update part of its round."""
        committed: CommittedUpdate = ask(self._link, "commit_update", run_id, round_number, update)
        return committed

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report the counts of one round's global model."""
        ask(self._link, "report_evaluation", run_id, round_number, evaluation)


def warm_up(threads: int) -> None:
    """Have torch load what it would load in the first task: all workers do so at once, but the first task is for one."""
    prepare_torch(threads, torch.device("cpu"))


class _Activity:
    """Tells what a client does: every new activity, and now and then how far it has come."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._activity: ClientActivity | None = None
        self._told_at = 0.0

    def tell(self, activity: ClientActivity, progress: float) -> None:
        """Pass on what is worth it."""
        now = time.monotonic()
        if activity is self._activity and now < self._told_at + TELL_S:
            return
        self._activity, self._told_at = activity, now
        self._link.send(Told(activity.value, progress))


def main(descriptor: int, threads: int, level: log.Level) -> None:
    """Be a worker of the process at the other end of a pipe."""
    log.set_up(level)
    warm_up(threads)
    Worker(PipeLink(Connection(descriptor)), BESIDE_THE_CREW).work()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])  # type: ignore[arg-type]  # processes.py gives a level
