"""Documents of clients."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from shared import types
from shared.documents.document import Document, utc_time
from shared.types import ClientActivity


class ClientEnvironment(Document):
    """What a trainer computes on."""

    packages: dict[str, str]
    cpu: str
    device: str
    platform: str


class ClientProblem(Document):
    """What keeps a trainer from its task, or what its operator should know."""

    reason: str
    detail: str
    hint: str
    is_fatal: bool


class Client(Document):
    """A client as the aggregator knows it."""

    client_id: str
    domain: str
    is_connected: bool
    activity: ClientActivity
    run_id: str | None
    """The run that it works on."""
    round: int | None
    """The round that it works on."""
    progress: float
    """Fraction of the present activity that is done."""
    num_examples: int
    class_counts: dict[str, int]
    environment: ClientEnvironment
    last_seen_at: datetime | None
    problem: ClientProblem | None
    readings: dict[str, float]
    """Its last readings, by name with unit as suffix."""

    @classmethod
    def of(cls, client: types.Client) -> Self:
        """The document of a client."""
        environment, problem = client.environment, client.problem
        return cls(
            client_id=client.client_id,
            domain=client.domain,
            is_connected=client.is_connected,
            activity=client.activity,
            run_id=client.run_id or None,
            round=client.round if client.run_id else None,
            progress=client.progress,
            num_examples=client.num_examples,
            class_counts=dict(client.class_counts),
            environment=ClientEnvironment(
                packages=dict(environment.packages),
                cpu=environment.cpu,
                device=environment.device,
                platform=environment.platform,
            ),
            last_seen_at=utc_time(client.last_seen_at) if client.last_seen_at else None,
            problem=ClientProblem(
                reason=problem.reason, detail=problem.detail, hint=problem.hint, is_fatal=problem.is_fatal
            )
            if problem
            else None,
            readings=dict(client.readings),
        )


class ClientList(Document):
    """Every client that ever joined, by id."""

    clients: list[Client]
