"""Basics of every process's metrics: prefix, buckets, build information, HTTP port.

Names have the prefix `fedplcc_` and base units. Labels are few and bounded, and never hold exception text. The composition
root of a process makes one registry and passes it down, so that tests and simulations share no counters.
"""

from __future__ import annotations

import errno
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics, make_wsgi_app

from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.shared.process.address_shares import AddressShares, network_of
from fedplcc.shared.process.loopback import is_loopback, names_loopback
from fedplcc.shared.version import VERSION

PREFIX = "fedplcc"
RPC_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Histogram buckets of a call's duration, in seconds."""
PHASE_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
"""Histogram buckets of the duration of a round or a phase, in seconds."""
OTHER = "other"
"""Label of clients and domains beyond the bound."""


PAUSE_S = 0.2
"""Pause before a connection is accepted again when the process has too many files open."""
MAX_CONNECTIONS = 16
"""Most connections at a time, of which a quarter is kept for this machine; one more displaces the oldest of its address that
has not asked yet, and is closed at once where there is none."""
MAX_OF_AN_ADDRESS = 4
"""The same of one address: a scrape is a connection of its own, and takes milliseconds."""
REQUEST_S = 5.0
"""Longest time from a connection to its whole request, TLS, headers and body together, however a caller spreads them."""
MAX_BODY_BYTES = 1 << 16
"""Longest body of a request that is read."""
CONNECTION_S = 10.0
"""Longest silence of a caller, and longest time for an answer to be taken."""
_CERTIFICATE = "fedplcc.certificate"
"""Entry of a request's environment: its caller's certificate in DER."""


class MetricsGuard(Protocol):
    """Who may read /metrics; called by any thread."""

    def secured(self, connection: socket.socket) -> socket.socket:
        """Return a connection with TLS, whose caller has shown a certificate. Raises OSError."""

    def require(self, certificate: bytes, address: str) -> None:
        """Refuse a caller by its certificate in DER. Raises FedplccError."""


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """HTTP server of /metrics."""

    server: WSGIServer

    @property
    def port(self) -> int:
        """Port that it listens at."""
        return int(self.server.server_port)

    def close(self) -> None:
        """Stop serving."""
        self.server.shutdown()
        self.server.server_close()


def new_registry(service: str) -> CollectorRegistry:
    """Return a registry with the metrics of the service's build and, on Linux, of its process.

    It also switches off `_created` series for the whole process: they would add one for each counter and histogram.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # has no annotations
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    info = Gauge(
        f"{PREFIX}_build_info", "Version of this process; always 1.", ["service", "version"], registry=registry
    )
    info.labels(service=service, version=VERSION).set(1)
    return registry


def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, guard: MetricsGuard | None = None
) -> MetricsServer:
    """Serve /metrics from a thread; port 0 takes any free one.

    Args:
        guard: Who may read it; whoever reaches the port, in plain text, if None, on loopback under its names alone.

    Raises:
        InvalidConfig: The port is taken.
    """
    answer = make_wsgi_app(registry)
    if guard is not None:
        answer = _guarded(answer, guard)
    elif is_loopback(host):
        answer = _named(answer)
    return serve_pages(answer, host, port, what="metrics", guard=guard)


def serve_pages(
    answer: Callable[..., Any], host: str, port: int, *, what: str, guard: MetricsGuard | None = None
) -> MetricsServer:
    """Serve a WSGI application from a thread, a thread for each caller; port 0 takes any free one.

    Args:
        guard: As above; its TLS is spoken.

    Raises:
        InvalidConfig: The port is taken.
    """
    try:
        server = _Server((host, port), guard)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            raise
        raise InvalidConfig(f"cannot serve {what} on {host}:{port}: {error.strerror}; choose another port") from error
    server.set_app(answer)
    threading.Thread(target=server.serve_forever, name=what, daemon=True).start()
    return MetricsServer(server)


class _Request(WSGIRequestHandler):
    """One request of a connection, which ends with it: each scrape is a connection of its own, and is judged anew."""

    server: _Server

    def parse_request(self) -> bool:
        """Read the request whole, body too; a caller is heard from then on."""
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length") or "0"
        if not (length.isascii() and length.isdecimal() and len(length) < 10 and int(length) <= MAX_BODY_BYTES):
            self.send_error(413)
            return False
        self.rfile = io.BytesIO(self.rfile.read(int(length)))
        self.server.heard(self.client_address)
        return True

    def get_environ(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environ()
        if isinstance(self.connection, ssl.SSLSocket):
            environ[_CERTIFICATE] = self.connection.getpeercert(binary_form=True)
        return environ

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape comes every few seconds."""


@dataclass(slots=True, eq=False)
class _Caller:
    """An open connection.

    Attributes:
        connection: The socket a second time: TLS takes the first one over.
        since: When the connection was accepted, on the monotonic clock.
        is_heard: Whether the whole request is there.
    """

    connection: socket.socket
    address: str
    since: float
    is_heard: bool = False


class _Server(ThreadingMixIn, WSGIServer):
    """Server with a thread for each of at most `MAX_CONNECTIONS`, which speaks TLS there: nobody waits for a slow caller.

    Who connects and asks nothing keeps nobody out: each has `REQUEST_S` for its request, and where an address has all
    connections that it may have, the next one displaces the oldest that has not asked.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, where: tuple[str, int], guard: MetricsGuard | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        self._guard, self._lock = guard, threading.Lock()
        self._shares = AddressShares(MAX_CONNECTIONS, MAX_OF_AN_ADDRESS)
        self._callers: dict[Any, _Caller] = {}
        """Those that are open, by address and port; the oldest first."""
        super().__init__(where, _Request)

    def server_bind(self) -> None:
        """Listen; the name of this machine, which `HTTPServer` asks a resolver for, is of no use."""
        TCPServer.server_bind(self)
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def get_request(self) -> Any:
        """Accept, with a pause where the process has too many files open: the listener would be ready again at once."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(PAUSE_S)
            raise

    def service_actions(self) -> None:
        """Close connections whose request is late; called twice a second."""
        late = time.monotonic() - REQUEST_S
        with self._lock:
            for where in [where for where, each in self._callers.items() if each.since < late and not each.is_heard]:
                self._leave(where)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_admitted = self._admit(request, client_address)
        if not is_admitted:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can start
            self._left(client_address, self._callers[client_address])
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        caller = self._callers.get(client_address)
        try:
            request.settimeout(CONNECTION_S)
            try:
                secured = request if self._guard is None else self._guard.secured(request)
            except OSError:  # no TLS, no certificate, or one of another federation; of ssl's errors too
                self.shutdown_request(request)
                return
            super().process_request_thread(secured, client_address)
        finally:
            self._left(client_address, caller)

    def heard(self, client_address: Any) -> None:
        """Record that a caller's whole request is there."""
        with self._lock:
            if client_address in self._callers:
                self._callers[client_address].is_heard = True

    def _admit(self, request: socket.socket, client_address: Any) -> bool:
        host = client_address[0]
        if self._shares.take(host) is not None:
            silent = (
                where
                for where, each in self._callers.items()
                if not each.is_heard and network_of(each.address) == network_of(host)
            )
            oldest = next(silent, None)
            if oldest is None:
                return False
            self._leave(oldest)
            if self._shares.take(host) is not None:
                return False
        try:
            again = request.dup()
        except OSError:  # too many files are open
            self._shares.give_back(host)
            return False
        self._callers[client_address] = _Caller(again, host, time.monotonic())
        return True

    def _leave(self, where: Any) -> None:
        """End a connection, and count it no more; its thread notices."""
        caller = self._callers.pop(where)
        self._shares.give_back(caller.address)
        with suppress(OSError):  # it has gone by itself
            caller.connection.shutdown(socket.SHUT_RDWR)
        caller.connection.close()

    def _left(self, where: Any, caller: _Caller | None) -> None:
        """Count a connection no more whose thread has ended; another one may have its address by now."""
        with self._lock:
            if caller is not None and self._callers.get(where) is caller:
                self._leave(where)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a caller that went away."""


def _named(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the application that answers under names of loopback: no page of another name in a browser here reads it."""

    def named(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if names_loopback(str(environ.get("HTTP_HOST", ""))):
            return answer(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"Metrics on loopback are read under 127.0.0.1 or localhost.\n"]

    return named


def _guarded(answer: Callable[..., Any], guard: MetricsGuard) -> Callable[..., Any]:
    """Return the application that answers only to whom the guard admits."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        try:
            guard.require(environ.get(_CERTIFICATE) or b"", str(environ.get("REMOTE_ADDR", "")))
        except FedplccError as error:
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{error.reason}: {error.detail}\n".encode()]
        return answer(environ, start_response)

    return guarded
