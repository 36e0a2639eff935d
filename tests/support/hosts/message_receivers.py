"""Receivers of messages on loopback: an HTTP server and an SMTP server that do what a test says, hostile things too."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import BinaryIO

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def status(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {line}", *headers, "Content-Length: 0", "Connection: close", "", "")).encode()


@dataclass
class Call:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebhookHost:
    """What came, and what is answered."""

    url: str
    calls: list[Call] = field(default_factory=list)
    answer: Callable[[BinaryIO], None] = lambda out: _write(out, OK)

    def says(self, answer: bytes) -> None:
        self.answer = lambda out: _write(out, answer)


def _write(out: BinaryIO, data: bytes) -> None:
    out.write(data)


@contextmanager
def webhook_host(tls: ssl.SSLContext | None = None) -> Iterator[WebhookHost]:
    """Serve HTTP, or HTTPS; each answer is what `answer` of the host writes at that time."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().decode().split(" ")[1]
            lines = iter(lambda: self.rfile.readline().decode().strip(), "")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = self.rfile.read(int(headers["content-length"]))
            host.calls.append(Call(path, headers, body))
            with suppress(OSError):  # the gateway had enough
                host.answer(self.wfile)  # type: ignore[arg-type]

    with _serving(Handler, tls) as port:
        origin = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
        host = WebhookHost(f"{origin}/hooks/in?token=not-to-be-shown")
        yield host


@dataclass
class MailHost:
    """What came, and what the server says to the end of a message."""

    port: int
    letters: list[bytes] = field(default_factory=list)
    verdict: bytes = b"250 taken\r\n"
    greeting: Callable[[BinaryIO], None] = lambda out: _write(out, b"220 here\r\n")


@contextmanager
def mail_host(tls: ssl.SSLContext | None = None, *, is_implicit: bool = False) -> Iterator[MailHost]:
    """Serve SMTP in plain text, with STARTTLS or over TLS."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                host.greeting(self.wfile)  # type: ignore[arg-type]
                if self.converse(offers_tls=tls is not None and not is_implicit):
                    assert tls is not None
                    with tls.wrap_socket(self.request, server_side=True) as self.request:
                        self.setup()
                        self.converse(offers_tls=False)

        def converse(self, *, offers_tls: bool) -> bool:
            """Answer until the other end leaves or asks for TLS, which is True."""
            for line in self.rfile:
                verb = line[:4].upper()
                if verb == b"STAR" and offers_tls:
                    self.wfile.write(b"220 go on\r\n")
                    return True
                if verb == b"EHLO" and offers_tls:
                    self.wfile.write(b"250-here\r\n250 STARTTLS\r\n")
                    continue
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    host.letters.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self.wfile.write({b"DATA": host.verdict, b"QUIT": b"221 bye\r\n"}.get(verb, b"250 well\r\n"))
            return False

    with _serving(Handler, tls if is_implicit else None) as port:
        host = MailHost(port)
        yield host


@contextmanager
def _serving(handler: type[socketserver.StreamRequestHandler], tls: ssl.SSLContext | None) -> Iterator[int]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def closed_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
