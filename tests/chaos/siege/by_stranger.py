"""What a stranger does, without certificate and key: to the gateway, the port of admission and that of members."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2 as enrol_pb2
from fedplcc.shared.identity.certificates import new_key, request_for
from fedplcc.shared.wire.addresses import split_address
from tests.chaos.siege.by_member import SECRETS, held_open, resets_of
from tests.chaos.siege.foe import Foe, a_guess, closed
from tests.support.federation.dearest_requests import dearest_join

ENROL = "/fedplcc.v1.EnrolService/"
HEALTH = "/grpc.health.v1.Health/Watch"
SILENT, HALF_BODIES, CONNECTIONS, WATCHES = 1000, 16, 448, 4000

# The gateway


def long_queries(foe: Foe) -> Iterator[str]:
    """Queries and paths of 16 KB."""
    for text in (SECRETS * 2700, "%01" * 5000, "a:a@" * 4000) * 10:
        yield foe.ask("GET", f"/v1/runs?name={text}")
        yield foe.ask("GET", f"/v1/runs/{text.replace('?', '')}")


def foreign_origins(foe: Foe) -> Iterator[str]:
    """Origins and hosts that are foreign, or none at all."""
    for headers in (
        {"Origin": "http://["},
        {"Origin": "https://elsewhere.example"},
        {"Host": "elsewhere.example"},
    ) * 200:
        yield foe.ask("POST", "/v1/runs", headers=headers, body=b"{}")


def guessed_keys(foe: Foe) -> Iterator[str]:
    """Configurations of 1 MiB with keys that were never made."""
    body = b'{"data": {"classes": [' + b'"x",' * 200_000 + b'"x"]}}'
    for _ in range(50):
        yield foe.ask("POST", "/v1/runs", key=a_guess(), body=body)


def half_bodies(foe: Foe) -> Iterator[str]:
    """Bodies that stop in their middle, with a key that was never made."""
    links = []
    try:
        for _ in range(4 * HALF_BODIES):
            link = foe.connected(foe.known.gateway_port)
            links.append(link)
            head = foe.request_text(
                "/v1/runs", a_guess(), "Content-Type: application/json\r\nContent-Length: 1000000\r\n"
            )
            link.sendall(head.replace(b"GET", b"POST", 1) + b"{" + b" " * 50_000)
            yield "held open"
        foe.is_over.wait(10.0)
    finally:
        closed(links)


def silent_sockets(foe: Foe) -> Iterator[str]:
    """Connections that say nothing, or half a head."""
    yield from _silence(foe, foe.known.gateway_port, SILENT, (b"", b"GET /livez HT", b"\r\n"), hold_s=10.0)


def probes(foe: Foe) -> Iterator[str]:
    """What is answered without a key, as fast as may be."""
    for path in ("/readyz", "/openapi.json", "/v1/problems", "/", "/docs") * 100:
        yield foe.ask("GET", path)


# The ports of gRPC


def unknown_methods(foe: Foe) -> Iterator[str]:
    """Methods that are not there, each of another name, at the port of admission; some names have 28 KB."""
    with foe.channel(foe.known.enrol_address) as channel:
        for number in range(1000):
            text = SECRETS * 4700 if number % 20 == 0 else SECRETS * 50
            yield foe.call(channel, f"/fedplcc.v1.EnrolService/{number}{text}", b"")


def watches(foe: Foe) -> Iterator[str]:
    """Watches of the port's health."""
    with foe.channel(foe.known.enrol_address) as channel:
        yield from foe.held_streams(channel, HEALTH, enrol_pb2.GetTimeRequest(), WATCHES // 4, hold_s=2.0)


def used_invitations(foe: Foe) -> Iterator[str]:
    """The same invitation again, which was used, with another key; questions for the time; certificates that are none."""
    name, secret = foe.known.invitation
    asked = enrol_pb2.EnrolRequest(
        invitation_id=name, secret=bytes.fromhex(secret), certificate_request=request_for(new_key())
    )
    with foe.channel(foe.known.enrol_address) as channel:
        for _ in range(300):
            yield foe.call(channel, f"{ENROL}Enrol", asked)
            yield foe.call(channel, f"{ENROL}GetTime", enrol_pb2.GetTimeRequest())
            yield foe.call(channel, f"{ENROL}BeginRecovery", enrol_pb2.BeginRecoveryRequest(certificate=b"0" * 15_000))


def empty_entries(foe: Foe) -> Iterator[str]:
    """4 MiB of empty entries to the port of admission."""
    with ExitStack() as held:
        channels = [held.enter_context(foe.channel(foe.known.enrol_address)) for _ in range(8)]
        for _ in range(20):
            yield from foe.burst(channels, f"{ENROL}Enrol", dearest_join())


def resets(foe: Foe) -> Iterator[str]:
    """Streams that are opened and reset on one connection to the port of admission."""
    methods = (f"{ENROL}GetTime", f"{ENROL}NoSuch", "/grpc.health.v1.Health/Check")
    yield from resets_of(foe, foe.known.enrol_address, methods)


def silent_connections(foe: Foe) -> Iterator[str]:
    """Forty connections a second to the ports of gRPC that say nothing."""
    for address in (foe.known.enrol_address, foe.known.address):
        port = split_address(address)[1]
        yield from _silence(foe, port, CONNECTIONS // 2, (b"", b"\x16\x03\x01\x02\x00"), hold_s=2.0)


def connections(foe: Foe) -> Iterator[str]:
    """Connections over TLS to the port of admission that call nothing."""
    yield from held_open(foe, foe.known.enrol_address, CONNECTIONS)


def without_a_certificate(foe: Foe) -> Iterator[str]:
    """Calls of the port of members."""
    for _ in range(20):
        with foe.channel() as channel:
            yield foe.call(channel, "/fedplcc.v1.RoundService/Join", dearest_join(), 2.0)


def _silence(foe: Foe, port: int, count: int, firsts: tuple[bytes, ...], hold_s: float) -> Iterator[str]:
    links: list[socket.socket] = []
    try:
        for number in range(count):
            link = foe.connected(port)
            links.append(link)
            link.sendall(firsts[number % len(firsts)])
            yield "opened"
        foe.is_over.wait(hold_s)
    finally:
        closed(links)
