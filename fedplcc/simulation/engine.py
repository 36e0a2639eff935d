"""The interface of engines, which do the clients' work in a simulation.

An engine has all clients. It reads their data once, and then does tasks, pass by pass, until the aggregator has acknowledged
each. Order and place are free: a task's result depends only on the task, the client's data and its kept state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fedplcc.shared.config.run import ClientSection
from fedplcc.shared.errors import FedplccError, from_reason
from fedplcc.shared.types import Client, ClientProblem, RunSpec, Task
from fedplcc.trainer.cancellation import ShouldStop
from fedplcc.trainer.owner.consent import Consent

if TYPE_CHECKING:  # workers use this module and load neither
    from fedplcc.shared.documents import Event
    from fedplcc.simulation.in_process_aggregator import InProcessAggregator

OnEvent: TypeAlias = "Callable[[Event], None]"
OnProblem = Callable[[str, ClientProblem], None]
"""Takes a client id and a problem that its operator should know of."""
OnActivity = Callable[[str, str, float], None]
"""Takes a client id, its activity and the fraction of it that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Callbacks for progress; all are called in the thread that drives the simulation."""

    on_event: OnEvent = lambda event: None
    on_problem: OnProblem = lambda client_id, problem: None
    on_activity: OnActivity = lambda client_id, activity, progress: None
    on_begin: Callable[[str], None] = lambda what: None
    """Takes the name of a step that may take a while, when it begins."""
    on_note: Callable[[str], None] = lambda text: None
    """Takes a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A client, its data and its device.

    Attributes:
        section: What the configuration says of it and of its data.
        withholds: Whether it keeps to itself what a run of privacy.claim = "site" lets none tell.
        device: auto, cpu, cuda or cuda:N.
        states: Folder of the client's kept state.
        consent: Code and downloads that the run may name: those of the simulating person's own configuration.
    """

    client_id: str
    domain: str
    section: ClientSection
    withholds: bool
    device: str
    states: Path
    consent: Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One client's task, and its connection to the aggregator."""

    client_id: str
    task: Task
    aggregator: InProcessAggregator


class Engine(Protocol):
    """Does the work of the clients of one simulation. For one thread."""

    def read(self, spec: RunSpec, should_stop: ShouldStop) -> Mapping[str, Client]:
        """Let every client read its data; returns the clients of the run by id.

        Raises:
            Cancelled: `should_stop()` held.
            FedplccError: A client's data, or the device, cannot be used; the sentence names the client.
        """

    def perform(self, work: Sequence[Work], should_stop: ShouldStop, on_done: Callable[[], None]) -> None:
        """Do tasks of different clients until the aggregator has acknowledged all of them.

        Args:
            work: The tasks, in the order of the clients' ids.
            should_stop: Asked before every batch, or many times a second.

        Raises:
            Cancelled: `should_stop()` held. Acknowledged tasks stay done, and the engine can only be closed.
            FedplccError: A client cannot do its task; the sentence names it. The engine can only be closed.
        """

    def close(self) -> None:
        """End all work at once; tasks that are not acknowledged are done again later."""


@contextmanager
def naming(client_id: str) -> Iterator[None]:
    """Within the block, prefix errors with the client's id."""
    try:
        yield
    except FedplccError as error:
        detail = f"client {client_id}: {error.detail}"
        raise from_reason(error.reason, detail, error.metadata, error.code) from error
