"""Documents of callers and of the console's sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from fedplcc.shared.documents.document import Document


class Caller(Document):
    """Who makes a request, and what it may do."""

    caller: str
    """key:ID, person:NAME <SUBJECT> of who signed on, or "anyone" where no keys are asked for."""
    label: str
    """Name of the key for people; of a session, who opened it."""
    scopes: list[str]
    """read, results, run, admin, metrics; each but metrics includes those before it."""
    expires_at: datetime | None
    """End of the key; none where it has no end."""
    federation: str
    """Id of the federation; empty where no keys are asked for."""
    transport: Literal["http", "https"]
    """How this request came to the gateway; what a listed proxy says counts."""
    is_insecure: bool
    """Whether anyone who reaches the gateway may do everything."""
    is_exposed: bool
    """Whether that is so, and other machines reach the gateway or its aggregator."""


class SignOnOffer(Document):
    """Where people sign on."""

    name: str
    """Name of the provider for people; empty where nobody signs on."""


class TerminalSignOn(Document):
    """A sign-on that has begun at a terminal."""

    url: str
    """Address that the person opens."""
    user_code: str
    """Code that the person types there."""
    handle: str
    """Secret that the terminal polls with."""
    interval_s: float
    """Seconds between two polls."""
    expires_at: datetime
    """When it is over."""


class SignOnPollRequest(Document):
    """A terminal's question whether its person has signed on."""

    handle: Annotated[str, Field(min_length=1, max_length=64)]
    """Secret that the beginning gave."""


class SignOnPoll(Document):
    """How a sign-on at a terminal stands."""

    key: str
    """Text of the person's session, sent as a key is; empty while the provider waits for the person."""
    expires_at: datetime | None
    """End of the session; none before."""


class ConsoleSessionRequest(Document):
    """A code of `fedplcc console`."""

    code: Annotated[str, Field(min_length=1, max_length=64)]
    """It opens the console once, within five minutes."""
