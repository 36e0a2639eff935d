"""Messages between a worker pool and its workers, one record a message, and the link that carries them.

    pool                        worker
    an order           ->                     Read, Perform, or a cell to train
                       <-       Ask           a question to the aggregator or about a client's kept state
    Answer, Failed     ->
                       <-       Report        progress, or a problem that a person should know of
                       <-       Answer, Failed, Crashed: the order's outcome
    Forget             ->                     is not answered

Messages are pickled: both ends are this very program, and nobody else can reach the link.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedplcc.shared.errors import FedplccError, from_reason
from fedplcc.shared.types import RunSpec, Task
from fedplcc.simulation.engine import Site


class LinkLost(Exception):
    """The other end is gone."""


class Link(Protocol):
    """One end of a connection that carries messages in order, both ways. For one thread."""

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            LinkLost: The other end is gone.
        """

    def receive(self) -> Any:
        """Wait for a message.

        Raises:
            LinkLost: The other end is gone.
        """


@dataclass(frozen=True, slots=True)
class Read:
    """Order to read a client's data; answered with the `Client`."""

    site: Site
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class Perform:
    """Order to do a client's task; answered with None."""

    site: Site
    task: Task


@dataclass(frozen=True, slots=True)
class Forget:
    """Order to release a client: another worker has taken it over."""

    client_id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the aggregator, or about a client's kept state: a method's name and its arguments."""

    method: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """Progress for the pool's observers: an `Activity`, a `CommittedRound`, a client's problem, or a sentence."""

    content: Any


@dataclass(frozen=True, slots=True)
class Activity:
    """A client's present activity and the fraction of it that is done."""

    name: str
    progress: float


@dataclass(frozen=True, slots=True)
class CommittedRound:
    """A committed round of a cell, and its mean accuracy over domains, a fraction; None if unknown."""

    number: int
    mean: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a question or an order."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the error tree; a class that only one end knows becomes the nearest one that both know."""

    reason: str
    detail: str
    metadata: Mapping[str, str]
    code: int

    @classmethod
    def of(cls, error: FedplccError) -> Failed:
        """Return the record of an error."""
        return cls(error.reason, error.detail, dict(error.metadata), int(error.code))

    def error(self) -> FedplccError:
        """Return the error of the record."""
        return from_reason(self.reason, self.detail, self.metadata, self.code)


@dataclass(frozen=True, slots=True)
class Crashed:
    """Any other error: a bug, or an error of a user's own code."""

    pickled: bytes | None
    """The error, where it can be pickled."""
    text: str
    """Its traceback."""

    @classmethod
    def of(cls, error: BaseException) -> Crashed:
        """Return the record of an error."""
        text = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)  # nosec B301 # an error that cannot be read back must not break the pool
        except Exception:  # whatever a user's class raises
            pickled = None
        return cls(pickled, text)

    def error(self) -> BaseException:
        """Return the error, caused by its traceback."""
        # Workers are processes of the same program and user: what they send is as trusted as they are.
        error = RuntimeError("a worker crashed") if self.pickled is None else pickle.loads(self.pickled)  # nosec B301
        assert isinstance(error, BaseException)
        error.__cause__ = WorkerTraceback(f"\n{self.text}")
        return error


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as text."""


def outcome(work: Callable[[], Any]) -> Answer | Failed | Crashed:
    """Return the message that tells how a worker's order ended.

    Raises:
        LinkLost: The pool is gone.
    """
    try:
        return Answer(work())
    except LinkLost:
        raise
    except FedplccError as error:
        return Failed.of(error)
    except (Exception, SystemExit) as error:  # a bug, or an error of a user's own code
        return Crashed.of(error)


def ask(link: Link, method: str, *arguments: Any, **named: Any) -> Any:
    """Ask the pool a question, and return its answer.

    Raises:
        LinkLost: The pool is gone.
        FedplccError: It answered with an error.
    """
    link.send(Ask(method, arguments, named))
    reply = link.receive()
    if isinstance(reply, Failed):
        raise reply.error()
    assert isinstance(reply, Answer)
    return reply.value
