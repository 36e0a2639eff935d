"""Causes of a connection to the aggregator that fails: an unknown name, another port's protocol, or TLS.

gRPC says that nobody answers, whatever the cause is. So the caller looks itself, once in a while.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from fedplcc.shared.errors import AggregatorUnavailable, TlsFailed
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.tls import HeldCertificate
from fedplcc.shared.wire.trouble.dialling import dialled
from fedplcc.shared.wire.trouble.tls_trouble import any_certificate, speaks_tls, tls_trouble

LOOK_AGAIN_S = 10.0
"""Time for which a found cause is given again before it is looked for anew."""
HTTP_REQUEST = b"GET /livez HTTP/1.1\r\nHost: aggregator.fedplcc\r\nConnection: close\r\n\r\n"
"""A request that changes nothing at any server."""
HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""An empty frame of settings, with which each side of HTTP/2 begins; its fourth byte is the type (RFC 9113, section 6.5)."""
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HTTP2_SETTINGS
"""The beginning of a connection of HTTP/2 (RFC 9113, section 3.4)."""
HTTP = b"HTTP/"
"""The first bytes of its answer, if HTTP/1 is spoken there."""


class ConnectionTrouble:
    """Cause of the failing connections to one address; any thread may ask."""

    def __init__(
        self, address: str, held: Callable[[], HeldCertificate] | None = None, *, http_proxy: str = ""
    ) -> None:
        """Prepare.

        Args:
            address: HOST:PORT of the aggregator.
            held: Returns the own certificate and the roots; None where plain text is spoken.
            http_proxy: HOST:PORT of an HTTP proxy on the way; none if empty.
        """
        self._address, self._held, self._http_proxy = address, held, http_proxy
        self._lock = threading.Lock()
        self._found: tuple[float, AggregatorUnavailable | None] | None = None

    def explained(self, error: AggregatorUnavailable) -> AggregatorUnavailable:
        """Return an error that names the cause; the error itself where none was found."""
        with self._lock:  # one thread looks, the others wait for what it finds
            if self._found is None or time.monotonic() >= self._found[0] + LOOK_AGAIN_S:
                held = None if self._held is None else self._held()
                cause = cause_of_failure(self._address, held, http_proxy=self._http_proxy)
                self._found = (time.monotonic(), cause)
            cause = self._found[1]
        return error if cause is None else type(cause)(cause.detail)


def cause_of_failure(
    address: str, held: HeldCertificate | None = None, *, http_proxy: str = "", now: float | None = None
) -> AggregatorUnavailable | None:
    """Return why an aggregator does not answer at an address; None where nobody answers there, and no other cause is seen.

    Args:
        address: HOST:PORT.
        held: The own certificate and the roots; None where plain text is spoken.
        http_proxy: HOST:PORT of an HTTP proxy on the way; none if empty.
        now: Seconds since the epoch; the clock's if None.
    """
    unknown = unknown_name(http_proxy or address)
    if unknown is not None:
        return AggregatorUnavailable(unknown)
    if speaks_http(address, http_proxy, over_tls=held is not None):
        return AggregatorUnavailable(http_sentence(address))
    if held is not None:
        trouble = tls_trouble(address, held, http_proxy=http_proxy, now=now)
        return None if trouble is None else TlsFailed(trouble)
    if not http_proxy and speaks_tls(address):
        return TlsFailed(f"{address} speaks TLS, and this process was started with --insecure; start it without")
    return None


def unknown_name(address: str) -> str | None:
    """Return a sentence if the host's name of HOST:PORT cannot be resolved here; None if it can."""
    host, port = split_address(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return unknown_name_sentence(host, error)
    return None


def unknown_name_sentence(host: str, error: Exception) -> str:
    """Return the sentence on a host's name that cannot be resolved."""
    why = getattr(error, "strerror", None) or error
    return f"the name {host} is not known here ({why}); mend DNS or /etc/hosts, or write the address"


def http_sentence(address: str) -> str:
    """Return the sentence on an address at which HTTP/1 is spoken in place of gRPC."""
    return (
        f"what answers at {address} speaks HTTP, not gRPC: that is the gateway's port, or a web server's; the "
        "aggregator's is 50051 unless it was started with another --port"
    )


def speaks_http(address: str, http_proxy: str = "", *, over_tls: bool) -> bool:
    """Whether HTTP/1 is spoken at HOST:PORT, in plain text or, where `over_tls`, over TLS. Takes at most a few seconds."""
    try:
        with dialled(address, http_proxy) as connection:
            connection.sendall(HTTP_REQUEST)
            with suppress(ConnectionError):  # a TLS server may end it without an answer
                if connection.recv(len(HTTP)) == HTTP:
                    return True
        if not over_tls:
            return False
        with dialled(address, http_proxy) as connection, any_certificate().wrap_socket(connection) as secure:
            if secure.selected_alpn_protocol() == "h2":
                return False
            secure.sendall(HTTP_REQUEST)
            return secure.recv(len(HTTP)) == HTTP
    except OSError:  # TLS errors among them
        return False


def speaks_grpc(address: str) -> bool:
    """Whether HTTP/2, as gRPC needs it, is spoken at HOST:PORT, in plain text or over TLS. Takes at most a few seconds."""
    try:
        with dialled(address) as connection:
            connection.sendall(HTTP2_PREFACE)
            with suppress(ConnectionError):  # a TLS server may end it without an answer
                if connection.recv(len(HTTP2_SETTINGS))[3:4] == HTTP2_SETTINGS[3:4]:
                    return True
        with dialled(address) as connection, any_certificate().wrap_socket(connection) as secure:
            return secure.selected_alpn_protocol() == "h2"
    except OSError:  # TLS errors among them
        return False
