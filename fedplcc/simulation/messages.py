"""What a crew and its workers say to each other, one record a message.

    crew                        worker
    Read, Perform      ->
                       <-       Ask           as often as the order needs the aggregator
    Answer, Failed     ->
                       <-       Told          what the client does, or what its operator should know
                       <-       Answer, Failed, Crashed: the order is dealt with
    Forget             ->                     is not answered

Messages are pickled: both ends are this very program, and nobody else can reach what is between them.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.simulation.engine import Site
from fedplcc.simulation.link import Link
from shared.errors import FedplccError, from_reason
from shared.types import ClientProblem, RunSpec, Task


@dataclass(frozen=True, slots=True)
class Read:
    """Have a client read its data; answered with the `Client`."""

    site: Site
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class Perform:
    """Do a client's task; answered with None."""

    site: Site
    task: Task


@dataclass(frozen=True, slots=True)
class Forget:
    """Let go of a client: another worker has it now."""

    client_id: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the aggregator, or to what the client keeps: a method's name and its arguments."""

    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What a client does and which fraction of that is done, or what its operator should know."""

    activity: str = ""
    progress: float = 0.0
    problem: ClientProblem | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question or an order came to."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """An error of the tree; classes that only one end knows become the nearest that both do."""

    reason: str
    detail: str
    metadata: Mapping[str, str]
    code: int

    @classmethod
    def of(cls, error: FedplccError) -> Failed:
        """The record of an error."""
        return cls(error.reason, error.detail, dict(error.metadata), int(error.code))

    def error(self) -> FedplccError:
        """The error of the record."""
        return from_reason(self.reason, self.detail, self.metadata, self.code)


@dataclass(frozen=True, slots=True)
class Crashed:
    """Any other error: a bug, or somebody's code."""

    pickled: bytes | None
    """The error, where it can be pickled."""
    text: str
    """Its traceback."""

    @classmethod
    def of(cls, error: BaseException) -> Crashed:
        """The record of an error."""
        text = "".join(traceback.format_exception(error))
        try:
            pickled = pickle.dumps(error)
            pickle.loads(pickled)  # what cannot be read back is found out here, where it harms nobody
        except Exception:  # whatever somebody's class raises
            pickled = None
        return cls(pickled, text)

    def error(self) -> BaseException:
        """The error, caused by its traceback."""
        error = RuntimeError("a worker crashed") if self.pickled is None else pickle.loads(self.pickled)
        assert isinstance(error, BaseException)
        error.__cause__ = WorkerTraceback(f"\n{self.text}")
        return error


class WorkerTraceback(Exception):
    """Where in a worker an error came from, as text."""


def ask(link: Link, method: str, *arguments: Any) -> Any:
    """Ask the crew something.

    Raises:
        LinkLost: The crew is gone.
        FedplccError: It answered with an error.
    """
    link.send(Ask(method, arguments))
    reply = link.receive()
    if isinstance(reply, Failed):
        raise reply.error()
    assert isinstance(reply, Answer)
    return reply.value
