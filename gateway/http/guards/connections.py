"""Connections of the gateway's port: how many there may be, and how long each may say nothing.

uvicorn counts none, and waits without end for the first request. Here a connection is counted from the moment it is
accepted, so also while its TLS handshake waits, and ends if it has not sent the whole head of a request in time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedplcc.gateway.http.guards.forwarded import Network, is_listed
from fedplcc.shared.process.address_shares import AddressShares, network_of
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.repeated_lines import RepeatedLines
from fedplcc.shared.process.resources import most_connections

HEAD_S = 10.0
"""Time in which a request's head arrives, from its first byte on; of the first one with the handshake, from the connection
on."""
MOST_REFUSED = 64
"""Connections that are refused before others have their turn on the event loop."""

log = get_logger("fedplcc.gateway.http.guards.connections")


class Connection(socket.socket):
    """An accepted connection that ends by itself if no request comes."""

    def __init__(self, listener: Listener, accepted: socket.socket, host: str) -> None:
        """Take an accepted socket over; the first head is waited for from now on."""
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._listener, self.host = listener, host
        self._deadline: asyncio.TimerHandle | None = None
        self.expect_head()

    def expect_head(self) -> None:
        """End in `HEAD_S` unless a head is whole by then; goes on waiting if it does so already."""
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(HEAD_S, self._end)

    def has_head(self) -> None:
        """Wait no more: a head is whole."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def close(self) -> None:
        """Close, and give the place back."""
        self.has_head()
        self._listener.forget(self)
        super().close()

    def end_without_head(self) -> None:
        """End now if a head is waited for."""
        if self._deadline is not None:
            self._end()

    def _end(self) -> None:
        with suppress(OSError):  # the other end went away just now
            self.shutdown(socket.SHUT_RDWR)  # its transport reads the end, and closes


class Listener(socket.socket):
    """A listening socket that counts its connections; one too many is closed at once. Used by one event loop."""

    def __init__(self, listening: socket.socket, trusted: Collection[Network] = (), most: int | None = None) -> None:
        """Take a listening socket over.

        Args:
            most: Connections that may be open; by the limit of open files if None.
        """
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._trusted = trusted
        self._open: dict[int, Connection] = {}
        self._shares = AddressShares(most_connections() if most is None else most)
        self._repeated = RepeatedLines(log)

    def accept(self) -> tuple[Connection, Any]:
        """Return the next connection that may be.

        Raises:
            BlockingIOError: There is none for now.
        """
        for _ in range(MOST_REFUSED):
            accepted, address = super().accept()
            host = str(address[0])
            # Listed proxies bring many callers.
            why = self._shares.take(host, is_kept_for=is_listed(host, self._trusted))
            if why is None:
                connection = Connection(self, accepted, host)
                self._open[connection.fileno()] = connection
                return connection, address
            accepted.close()
            level = self._repeated.level(logging.WARNING, network_of(host), "connection", why)
            log.log(level, "connection_refused", peer=host, reason=why, open=len(self._open))
        raise BlockingIOError

    def connection(self, number: int) -> Connection:
        """Return the open connection with this number of a file."""
        return self._open[number]

    def forget(self, connection: Connection) -> None:
        """Give the place of a connection back that is about to be closed."""
        if self._open.pop(connection.fileno(), None) is not None:
            self._shares.give_back(connection.host)

    def end_silent(self) -> None:
        """End what waits for a head, handshakes among it."""
        for connection in self._open.values():
            connection.end_without_head()


class _Repeated(logging.Filter):
    """Filter of uvicorn's warnings of what is no HTTP, which anybody can send: each is one line a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._repeated = RepeatedLines(log)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        level = self._repeated.level(record.levelno, "anyone", "connection", str(record.msg))
        return level == record.levelno


_of_uvicorn = logging.getLogger("uvicorn.error.http")
_of_uvicorn.addFilter(_Repeated())


_LENGTHS = {b"content-length", b"transfer-encoding"}


class WatchedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 in pure Python, on connections of a `Listener` whose requests are waited for in time."""

    def __init__(self, listener: Listener, **arguments: Any) -> None:
        """Speak HTTP on a connection of this listener; the other arguments are uvicorn's."""
        super().__init__(**arguments)
        self._listener, self.logger = listener, _of_uvicorn
        self._next_event, self.conn.next_event = self.conn.next_event, self._unambiguous  # type: ignore[method-assign]

    def _unambiguous(self) -> Any:
        """Return the next part of the exchange; a request whose end a proxy before us may see elsewhere is no HTTP."""
        event = self._next_event()
        if isinstance(event, h11.Request) and {name for name, _ in event.headers} >= _LENGTHS:
            raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding")
        return event

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin, after the handshake if there is one."""
        super().connection_made(transport)
        self._connection = self._listener.connection(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        """Take bytes in; a head that has begun is waited for in time."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._connection.expect_head()
            return
        self._connection.has_head()
        if self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            # The rest of a body that was answered already. uvicorn has just ended the wait for it.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
