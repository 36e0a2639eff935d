"""Documents of clients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Self

from fedplcc.shared import types
from fedplcc.shared.documents.document import Document, utc_time
from fedplcc.shared.types import ClientActivity, LogLevel

MAX_CLASSES, MAX_CLASS_CHARACTERS = 1000, 64 << 10
"""Most classes of a client that a document names, and most characters of their names together."""


class ClientEnvironment(Document):
    """Software and hardware of a trainer."""

    packages: dict[str, str]
    cpu: str
    device: str
    platform: str


class ClientProblem(Document):
    """A problem that keeps a trainer from its task, or that its operator should know."""

    reason: str
    detail: str
    hint: str
    is_fatal: bool


class Client(Document):
    """A client as the aggregator knows it."""

    client_id: str
    domain: str
    display_name: str = ""
    """Its name for people, in any letters, beside the id; empty if it has none."""
    model_kind: str = ""
    """Its own kind of model: name, and stem if it has stems; empty where it trains the run's."""
    is_connected: bool
    activity: ClientActivity
    run_id: str | None
    """The run of its present task."""
    round: int | None
    """The round of its present task."""
    progress: float
    """Finished fraction of the present activity."""
    num_examples: int
    class_counts: dict[str, int]
    """Its samples by class: of the first 1000 classes, and less if their names are very long."""
    num_classes: int = 0
    """Its classes, also those that `class_counts` leaves out."""
    environment: ClientEnvironment
    last_seen_at: datetime | None
    problem: ClientProblem | None
    readings: dict[str, float]
    """Its latest readings by name; the name ends in the unit."""
    held_bytes: int = 0
    """Bytes of its uploads on the aggregator's disk that no commit has stored yet."""
    smallest_side: int | None = None
    """Smallest side of the images that it looked at when it joined, in pixels; null where it is not connected or does not
    say."""
    is_revoked: bool = False
    """Whether every certificate of it was revoked: it can come back by another invitation only."""

    @classmethod
    def of(cls, client: types.Client) -> Self:
        """Return the document of a client."""
        return cls.like(
            client,
            run_id=client.run_id or None,
            round=client.round if client.run_id else None,
            class_counts=_named(client.class_counts),
            num_classes=len(client.class_counts),
            smallest_side=client.smallest_side or None,
            environment=ClientEnvironment.like(client.environment),
            last_seen_at=utc_time(client.last_seen_at) if client.last_seen_at else None,
            problem=ClientProblem.like(client.problem) if client.problem else None,
        )


class ClientPage(Document):
    """Clients that ever joined, by id."""

    clients: list[Client]
    next_page_token: str | None
    """`page_token` of the next page; null at the end."""


class ClientLogLine(Document):
    """A line of a trainer's log; deploy/logs.md says what each event means."""

    number: int
    """Greater than that of every line that came before."""
    time: datetime
    level: LogLevel
    event: str
    run_id: str | None
    round: int | None
    facts: dict[str, str]
    """What else it says, for instance `outcome`."""


class ClientLog(Document):
    """Log lines of a client's trainer that the owner of its site lets out."""

    level: LogLevel | None
    """From which level on the owner lets lines out; null where no trainer has said so since the aggregator started."""
    lines: list[ClientLogLine]
    """Oldest first."""
    left_out: int
    """Lines that trainer or aggregator left out."""

    @classmethod
    def of(cls, log: types.ClientLog) -> Self:
        """Return the document of a client's log."""
        lines = [
            ClientLogLine.like(
                line,
                number=number,
                time=utc_time(line.time),
                run_id=line.run_id or None,
                round=line.round if line.run_id else None,
                facts=dict(line.facts),
            )
            for number, line in log.lines
        ]
        return cls(level=log.level, lines=lines, left_out=log.left_out)


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the classes that a document names."""
    named, num_characters = dict[str, int](), 0
    for name, count in islice(counts.items(), MAX_CLASSES):
        num_characters += len(name)
        if num_characters > MAX_CLASS_CHARACTERS:
            break
        named[name] = count
    return named
