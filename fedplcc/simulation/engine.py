"""What does the clients' work in a simulation, as the federation sees it.

An engine has all clients. It is asked to read their data, once, and then again and again to do some clients' tasks until the
aggregator has acknowledged each. In which order and where it does them is its own affair: a task's result is a function of
the task, the client's data and what the client keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from shared.errors import FedplccError, from_reason
from shared.types import Client, ClientProblem, RunSpec, Task
from trainer.cancellation import ShouldStop
from trainer.consent import Consent

if TYPE_CHECKING:  # workers are told of sites, and have neither
    from fedplcc.simulation.in_process_aggregator import InProcessCoordinator
    from shared.documents import Event

OnEvent: TypeAlias = "Callable[[Event], None]"
OnProblem = Callable[[str, ClientProblem], None]
"""Told the client id and what its operator should know."""
OnActivity = Callable[[str, str, float], None]
"""Told the client id, what it does and which fraction of that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Who is told what happens, always in the thread that drives the simulation."""

    on_event: OnEvent = lambda event: None
    on_problem: OnProblem = lambda client_id, problem: None
    on_activity: OnActivity = lambda client_id, activity, progress: None
    on_begin: Callable[[str], None] = lambda what: None
    """Told what begins and may take a while."""
    on_note: Callable[[str], None] = lambda text: None
    """Told what else a person should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where one client's tasks are done.

    Attributes:
        client_id: The client.
        domain: Label of the domain of its data.
        data: Data specification.
        samples_per_class: Size of a class-balanced training subset; all samples if None.
        device: auto, cpu, cuda or cuda:N.
        states: Folder of what the client keeps.
        consent: What the run may name: it is the configuration of the person who simulates it.
    """

    client_id: str
    domain: str
    data: str
    samples_per_class: int | None
    device: str
    states: Path
    consent: Consent


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One client's task, and its way to the aggregator."""

    client_id: str
    task: Task
    coordinator: InProcessCoordinator


class Engine(Protocol):
    """Does what the clients of one simulation have to do. For one thread."""

    def read(self, spec: RunSpec, should_stop: ShouldStop) -> Mapping[str, Client]:
        """Let every client read its data; returns the clients by id, as they take part in the run.

        Raises:
            Cancelled: `should_stop()` held.
            FedplccError: A client's data, or the device, cannot be used; the sentence names the client.
        """

    def perform(self, work: Sequence[Work], should_stop: ShouldStop, on_done: Callable[[], None]) -> None:
        """Do tasks of different clients until the aggregator has acknowledged all of them.

        Args:
            work: The tasks, in the order of the clients' ids.
            should_stop: Asked before every batch, or many times a second.
            on_done: Called whenever a task is done.

        Raises:
            Cancelled: `should_stop()` held. What was acknowledged stays, and the engine can only be closed.
            FedplccError: A client cannot do its task; the sentence names it. The engine can only be closed.
        """

    def close(self) -> None:
        """End whatever still works, at once; what is not acknowledged is done again another time."""


@contextmanager
def naming(client_id: str) -> Iterator[None]:
    """Within the block, errors say which client they are about."""
    try:
        yield
    except FedplccError as error:
        detail = f"client {client_id}: {error.detail}"
        raise from_reason(error.reason, detail, error.metadata, error.code) from error
