"""Documents of callers and of the console's sessions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from fedplcc.shared.documents.document import Document


class Caller(Document):
    """Who makes a request, and what it may do."""

    caller: str
    """key:ID, or "anyone" where no keys are asked for."""
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


class ConsoleSessionRequest(Document):
    """A code of `fedplcc console`."""

    code: Annotated[str, Field(min_length=1, max_length=64)]
    """It opens the console once, within five minutes."""
