"""The HTTP server: uvicorn with this project's logging, signals and shutdown."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from fedplcc.gateway.http.guards.connections import Listener, WatchedProtocol
from fedplcc.gateway.http.guards.forwarded import Network
from fedplcc.shared.errors import InvalidConfig

STOP_S = 5
"""Time that open requests have to finish when the gateway stops; event streams end at once."""
BACKLOG = 1024
KEEP_ALIVE_S = 90
"""Time that an idle connection stays open: longer than proxies keep theirs (60 s is usual), so that it is they who end it,
and no request meets a connection that just closed."""


def listen(host: str, port: int, trusted: Collection[Network] = ()) -> Listener:
    """Return a listening socket that counts its connections, those of listed proxies apart; port 0 takes any free port.

    Raises:
        InvalidConfig: The port is taken, or the address is not of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections inherit it. asyncio sets it for sockets alone whose protocol is named, which that of `create_server` is
        # not: a body would wait for the acknowledgement of its headers, which a browser holds back for 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Listener(listening, trusted)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidConfig(f"cannot listen at {host}, port {port}: {reason}; choose another with --port") from error


class Server(uvicorn.Server):
    """A server that calls back when it serves and when it begins to stop, and that returns after a signal."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        *,
        tls: ssl.SSLContext | None = None,
        started: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        """Prepare to serve at a socket of `listen`; with a context, over TLS.

        `started` is called when it serves, `stopping` when it begins to stop.
        """
        config = uvicorn.Config(
            app,
            lifespan="on",
            http="h11",
            ws="none",
            # The application writes one line per request, with its id, to the log that the process has set up.
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_S,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        config.load()
        config.ssl = tls
        protocol: Any = partial(WatchedProtocol, listener)  # called as the class is
        config.http_protocol_class = protocol
        super().__init__(config)
        self._listener = listener
        self._on_started, self._on_stopping = started, stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, then call `started`."""
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `stopping`, then stop. Streams must end first: the server waits for open responses."""
        self._on_stopping()
        self._listener.end_silent()  # uvicorn knows no connection before its handshake
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGINT and SIGTERM. Unlike uvicorn's own handling, the signal does not end the process afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
