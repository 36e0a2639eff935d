"""What is between a crew and a worker: messages in order, both ways. And the one that is a pipe."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any, Protocol


class LinkLost(Exception):
    """The other end is gone."""


class Link(Protocol):
    """One end. For one thread."""

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


class PipeLink:
    """One end of a pipe between two processes of this machine; the kernel says when the other one is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: object) -> None:
        """See `Link`."""
        try:
            self._connection.send(message)
        except OSError:
            raise LinkLost from None

    def receive(self) -> Any:
        """See `Link`."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise LinkLost from None

    def close(self) -> None:
        """Let go of this end."""
        self._connection.close()
