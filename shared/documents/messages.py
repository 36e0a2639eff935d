"""Documents of messages to people."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fedplcc.shared.documents.document import Document


class MessageReceiver(Document):
    """A receiver of messages. Addresses and secrets are in the file of the gateway's owner alone."""

    name: str
    kind: Literal["webhook", "mail"]
    host: str
    """Host of the webhook, or the mail server."""
    events: list[str]
    """Kinds of events that it is told of."""
    runs: list[str]
    """Patterns of the runs that it is told of."""
    clients: list[str]
    """Patterns of the clients that it is told of."""
    last_kind: str | None
    """Kind of the last message that it took."""
    last_at: datetime | None
    """When it took it."""
    failure: str
    """Why the last attempt to tell it failed; empty where it did not."""


class MessageReceivers(Document):
    """All receivers, by name."""

    receivers: list[MessageReceiver]


class MessageTest(Document):
    """How a test ended."""

    is_delivered: bool
    failure: str
    """Why it was not; empty where it was."""
