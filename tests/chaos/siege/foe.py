"""An attacker: what it knows, how it calls, and how much of this machine it takes.

A real one sits on another host. Here it shares the processors with what it attacks, so each attacker's process takes a
stated part of a processor and no more; each attack has a rate besides.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.identity.api_keys import api_key_text
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.wire.addresses import split_address
from fedplcc.shared.wire.channels import channel_options
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.trouble.ssl_pairs import load_pair

SHARE = 0.2
"""Part of one processor that an attacker's process takes."""
CALL_S = 30.0
HOST = "127.0.0.1"
OK = "OK"


@dataclass(frozen=True)
class Known:
    """What the attackers know; they share it."""

    address: str
    """HOST:PORT of the services for members."""
    enrol_address: str
    gateway_port: int
    roots_pem: str
    keys: Mapping[str, str]
    """Text of a key by its scope."""
    own_run: str
    """A run of the member alone."""
    honest: tuple[str, ...]
    """The honest clients."""
    invitation: tuple[str, str]
    """Id and secret, in hexadecimal, of an invitation that was used."""
    only: str = ""
    """Pattern of the names of the attacks that are carried out."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Known:
        return cls(**json.loads(text))


class Foe:
    """One attacker, within a process of its own; its methods are called by a thread for each attack."""

    def __init__(self, known: Known, identity: Path | None, source: str, share: float = SHARE) -> None:
        """Prepare.

        Args:
            known: What it knows.
            identity: File with its certificate; None if it has none.
            source: Its address on loopback, where it may choose one: gRPC's own channels come from `HOST`.
            share: Part of one processor that this process takes.
        """
        self.known, self.source, self._share = known, source, share
        self.held = None if identity is None else Credentials.load(identity)
        self.is_over = threading.Event()
        self._begin = time.monotonic()
        self._web = threading.local()

    def pace(self, per_s: float) -> None:
        """Wait as an attack with this rate does, and until this process has its share of a processor again."""
        self.is_over.wait(1.0 / per_s)
        while not self.is_over.is_set() and time.process_time() > 1.0 + self._share * (time.monotonic() - self._begin):
            self.is_over.wait(0.05)

    # gRPC

    def channel(self, address: str = "") -> grpc.Channel:
        """A connection of its own, with the attacker's certificate if it has one."""
        roots = self.known.roots_pem.encode()
        held = self.held
        credentials = (
            grpc.ssl_channel_credentials(roots)
            if held is None
            else grpc.ssl_channel_credentials(roots, held.key_pem, held.chain_pem)
        )
        options = dict(channel_options(True, ""))
        options["grpc.max_metadata_size"] = options["grpc.absolute_max_metadata_size"] = 1 << 20
        return grpc.secure_channel(address or self.known.address, credentials, options=list(options.items()))

    @staticmethod
    def call(channel: grpc.Channel, method: str, request: Message | bytes, timeout_s: float = CALL_S) -> str:
        """Call a method that takes and gives one message; returns OK or the reason of its refusal."""
        return said(lambda: _unary(channel, method)(_bytes(request), timeout=timeout_s))

    @staticmethod
    def burst(channels: Iterable[grpc.Channel], method: str, request: Message | bytes) -> Iterator[str]:
        """Call a method over each of these connections at once."""
        data = _bytes(request)
        under_way = [_unary(channel, method).future(data, timeout=CALL_S) for channel in channels]
        for call in under_way:
            yield said(call.result)

    def held_streams(self, channel: grpc.Channel, method: str, request: Message, count: int, hold_s: float) -> Any:
        """Open streams of answers, read none of them for a while, and give them up; yields what became of each."""
        call: Any = channel.unary_stream(method)  # type: ignore[call-arg]  # bytes as they are
        open_calls = [call(request.SerializeToString(), timeout=10 * CALL_S) for _ in range(count)]
        self.is_over.wait(hold_s)
        for each in open_calls:
            yield "held open" if each.is_active() else said(lambda each=each: next(each, None))  # type: ignore[misc]
            each.cancel()

    # Below gRPC and HTTP

    def connected(self, port: int) -> socket.socket:
        """A TCP connection from the attacker's address that takes little in, unless it is read."""
        link = socket.socket()
        link.settimeout(CALL_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.bind((self.source, 0))
        link.connect((HOST, port))
        return link

    def spoken(self, address: str) -> ssl.SSLSocket:
        """A TLS connection that speaks HTTP/2 to a port of gRPC, with the attacker's certificate if it has one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if self.held is not None:
            load_pair(context, self.held.key_pem, self.held.chain_pem)
        link = self.connected(split_address(address)[1])
        try:
            return context.wrap_socket(link, server_hostname=AGGREGATOR_DNS)
        except BaseException:
            link.close()
            raise

    # HTTP

    def ask(self, method: str, path: str, **more: Any) -> str:
        """Make a request of the gateway, see `answer`; returns status and reason."""
        status, text = self.answer(method, path, **more)
        return OK if status < 400 else f"{status} {_reason(text)}"

    def answer(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Make a request of the gateway over the thread's connection; returns status and body."""
        connection = getattr(self._web, "connection", None)
        if connection is None:
            connection = self._web.connection = http.client.HTTPConnection(
                HOST, self.known.gateway_port, timeout=CALL_S, source_address=(self.source, 0)
            )
        given = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection.request(method, path, body, {**given, "Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            connection.close()
            raise

    def request_text(self, path: str, key: str = "", more: str = "") -> bytes:
        """The head of a GET request."""
        shown = f"Authorization: Bearer {key}\r\n" if key else ""
        return f"GET {path} HTTP/1.1\r\nHost: {HOST}:{self.known.gateway_port}\r\n{shown}{more}\r\n".encode()


def a_guess() -> str:
    """A key that was never made."""
    return api_key_text(secrets.token_hex(6), secrets.token_bytes(32))


def said(call: Callable[[], object]) -> str:
    """OK, or the reason of a refusal."""
    try:
        with translated():
            call()
    except FedplccError as error:
        return error.reason
    return OK


def closed(links: Iterable[socket.socket]) -> None:
    """Close them."""
    for link in links:
        with suppress(OSError):
            link.close()


def _unary(channel: grpc.Channel, method: str) -> Any:
    return channel.unary_unary(method)  # type: ignore[call-arg]  # bytes as they are


def _bytes(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["code"])
    except (ValueError, KeyError, TypeError):
        return "without a reason"


class Tally:
    """How often each attack had which outcome."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self._lock = threading.Lock()

    def add(self, attack: str, outcome: str) -> None:
        with self._lock:
            self.counts.setdefault(attack, Counter())[outcome] += 1
