"""Connections that say nothing, or too many of them: the gateway ends them, and serves everybody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.gateway.app import serve
from fedplcc.gateway.http import server as http_server
from fedplcc.gateway.http.guards import connections
from fedplcc.gateway.http.guards.connections import Listener
from fedplcc.gateway.http.server import Server
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.address_shares import MOST_OF_AN_ADDRESS, AddressShares
from fedplcc.shared.process.repeated_lines import RepeatedLines
from tests.support.federation.processes import eventually
from tests.support.identity.keyed_federation import issued
from tests.support.records.captured_logs import logged

HEAD_S = 0.5
WAIT_S = 60.0
"""Time in which the end of a connection must come: long after `HEAD_S`, for busy machines."""
MOST = 20
NO_AGGREGATOR = "127.0.0.1:1"
HALF_A_HELLO = b"\x16\x03\x01\x02\x00"
HOLDER = textwrap.dedent(
    """
    import socket, sys

    port, count, first = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
    held = []
    for _ in range(count):
        held.append(socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0)))
        try:
            held[-1].sendall(first)
        except OSError:
            pass  # it was one too many
    print("held", flush=True)
    sys.stdin.read()
    """
)
"""A stranger at 127.0.0.2 that holds connections, each with the same first bytes, until its input ends."""


@contextmanager
def served(settings: GatewaySettings) -> Iterator[tuple[Server, str]]:
    """The gateway's server and its URL; no aggregator is there."""
    ready: list[tuple[Server, str]] = []
    is_ready = threading.Event()

    def note(server: Server, url: str) -> None:
        ready.append((server, url))
        is_ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve(settings, note)), daemon=True)
    thread.start()
    assert is_ready.wait(WAIT_S)
    try:
        yield ready[0]
    finally:
        ready[0][0].should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.fixture
def plain() -> Iterator[str]:
    with served(GatewaySettings(port=0, insecure=True, aggregator=NO_AGGREGATOR)) as (_, url):
        yield url


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[str]:
    state = tmp_path / "aggregator"
    state.mkdir(mode=0o700)
    held = issued(Authority.open(state), Role.GATEWAY, "console")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(held.chain_pem)
    key.write_bytes(held.key_pem)
    settings = GatewaySettings(
        port=0, tls_cert=certificate, tls_key=key, state_dir=tmp_path / "gateway", aggregator=NO_AGGREGATOR
    )
    with served(settings) as (_, url):
        yield url


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    where = httpx.URL(url)
    with socket.create_connection((where.host, where.port or 0), timeout=WAIT_S) as connection:
        yield connection


@contextmanager
def stranger(url: str, count: int, first: bytes = b"") -> Iterator[None]:
    """Another process at 127.0.0.2 that holds so many connections."""
    command = [sys.executable, "-c", HOLDER, str(httpx.URL(url).port), str(count), first.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()


def is_ended(connection: socket.socket) -> bool:
    """Whether the other end closes it, whatever it says before."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:  # reset, or an end without TLS's own
        pass
    return True


def drips_in_vain(connection: socket.socket) -> bool:
    """Send another line of a head; whether the other end has closed."""
    try:
        connection.sendall(b"X-A: 1\r\n")
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def answered(connection: socket.socket) -> bytes:
    """A whole answer of `/livez`."""
    received = b""
    while not received.endswith(b"}"):
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece
    return received


FIRST_BYTES = {
    "silence": b"",
    "a blank line": b"\r\n",
    "half a line": b"GET /livez HT",
    "half a head": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A: ",
}


@pytest.mark.parametrize("first", FIRST_BYTES.values(), ids=list(FIRST_BYTES))
def test_a_connection_without_a_whole_head_is_closed(first: bytes, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", HEAD_S)
    with connected(plain) as connection:
        connection.sendall(first)
        assert is_ended(connection)


def test_a_head_that_drips_is_closed(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", HEAD_S)
    with connected(plain) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        connection.settimeout(0.05)
        eventually(lambda: drips_in_vain(connection), "the drip is closed", WAIT_S)


def test_half_a_second_head_is_closed(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", HEAD_S)
    with connected(plain) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answered(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /liv")
        assert is_ended(connection)


@pytest.mark.parametrize("path", ["/v1/runs/x/pause", "/v1/models/x"])
def test_a_request_whose_end_could_be_read_in_two_ways_is_refused_and_ends_its_connection(
    path: str, plain: str
) -> None:
    with connected(plain) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        connection.sendall(f"{head}{both}GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        received = b""
        while piece := connection.recv(1 << 16):
            received += piece
        assert received.startswith(b"HTTP/1.1 400")
        assert received.count(b"HTTP/1.1 ") == 1


def test_what_is_no_http_is_a_line_a_minute(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (once,) = connections._of_uvicorn.filters
    monkeypatch.setattr(
        once, "_repeated", RepeatedLines(connections.log)
    )  # others have sent such things within the minute
    with logged() as lines:
        for _ in range(20):
            with connected(plain) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                assert is_ended(connection)
        assert len(lines("Invalid HTTP request received.")) == 1


def test_a_connection_between_requests_is_kept_for_its_own_time(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", HEAD_S)
    with connected(plain) as connection:
        for _ in range(2):
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answered(connection).startswith(b"HTTP/1.1 200")
            threading.Event().wait(3 * HEAD_S)


def test_the_rest_of_a_body_that_was_answered_is_waited_for_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 1)
    settings = GatewaySettings(port=0, insecure=True, aggregator=NO_AGGREGATOR)
    with served(settings) as (_, url), connected(url) as connection:
        connection.sendall(b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 405")
        connection.sendall(b"x")
        assert is_ended(connection)


@pytest.mark.parametrize("first", [b"", HALF_A_HELLO], ids=["silence", "half a hello"])
def test_a_silent_handshake_is_closed(first: bytes, secure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", HEAD_S)
    with connected(secure) as connection:
        connection.sendall(first)
        assert is_ended(connection)


def test_silence_after_a_handshake_is_closed(secure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 3.0)
    with connected(secure) as connection, _trusting().wrap_socket(connection) as spoken:
        assert is_ended(spoken)


@pytest.mark.parametrize(
    ("scheme", "first"),
    [("plain", b""), ("plain", b"GET /livez HT"), ("secure", b""), ("secure", HALF_A_HELLO)],
    ids=["silence", "half a head", "silent handshake", "half a hello"],
)
def test_an_address_with_too_many_connections_leaves_the_others_served(
    scheme: str, first: bytes, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(scheme)
    with stranger(url, MOST_OF_AN_ADDRESS + 50, first):
        for _ in range(5):
            assert httpx.get(f"{url}/livez", verify=False, timeout=WAIT_S).status_code == 200
        assert not is_served_at_the_other_address(url)
    eventually(lambda: is_served_at_the_other_address(url), "its places are given back", WAIT_S)


def test_this_machine_has_places_left_whatever_others_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: MOST)
    settings = GatewaySettings(port=0, insecure=True, aggregator=NO_AGGREGATOR)
    with served(settings) as (_, url), stranger(url, MOST + 50):
        assert httpx.get(f"{url}/livez", timeout=WAIT_S).status_code == 200


def test_proxies_and_this_machine_may_have_more_than_an_address_but_not_more_than_there_are() -> None:
    async def count(trusted: str, source: str) -> int:
        proxies = GatewaySettings(trusted_proxy=trusted).proxies if trusted else ()
        with ExitStack() as held:
            listening = Listener(socket.create_server(("127.0.0.1", 0)), proxies, most=MOST)
            held.enter_context(listening).settimeout(0.5)
            for _ in range(MOST + 5):
                where, here = listening.getsockname(), (source, 0)
                held.enter_context(socket.create_connection(where, source_address=here))
            accepted = []
            try:
                while True:
                    accepted.append(held.enter_context(listening.accept()[0]))
            except (TimeoutError, BlockingIOError):
                return len(accepted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "AddressShares", partial(AddressShares, of_an_address=3))
        assert asyncio.run(count("", "127.0.0.2")) == 3
        assert asyncio.run(count("", "127.0.0.1")) == MOST
        assert asyncio.run(count("127.0.0.2", "127.0.0.2")) == MOST


def is_served_at_the_other_address(url: str) -> bool:
    transport = httpx.HTTPTransport(local_address="127.0.0.2", verify=False)
    with httpx.Client(transport=transport, timeout=WAIT_S) as client:
        try:
            return client.get(f"{url}/livez").status_code == 200
        except httpx.TransportError:
            return False


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
