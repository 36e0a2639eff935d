"""Each cause of a connection that fails is found and said, at real servers on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from fedplcc.shared.errors import AggregatorUnavailable, TlsFailed
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2, enrol_service_pb2_grpc
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.trouble.connection_trouble import ConnectionTrouble, cause_of_failure
from fedplcc.shared.wire.trouble.ssl_pairs import load_pair
from tests.support import present
from tests.support.federation.certificates import Held, TestAuthority
from tests.support.federation.processes import free_port

AHEAD_S = 5 * 3600.0


class Enrolment(enrol_service_pb2_grpc.EnrolServiceServicer):
    """Tells a time that is hours ahead of this machine's."""

    async def GetTime(
        self, request: enrol_service_pb2.GetTimeRequest, context: object
    ) -> enrol_service_pb2.GetTimeResponse:
        return enrol_service_pb2.GetTimeResponse(time=time.time() + AHEAD_S, federation="f0123456789abcde")


@contextlib.asynccontextmanager
async def serving(authority: TestAuthority | None, *, demands_client: bool = True) -> AsyncIterator[str]:
    tls = None if authority is None else authority.server_tls(demands_client=demands_client)
    server = RpcServer("127.0.0.1", 0, tls=tls)
    server.add(
        enrol_service_pb2_grpc.add_EnrolServiceServicer_to_server,
        Enrolment(),
        enrol_service_pb2.DESCRIPTOR.services_by_name["EnrolService"],
    )
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def ann(authority: TestAuthority) -> Held:
    return authority.issue(Role.CLIENT, "ann")


def sentence(address: str, held: Held | None, *, now: float | None = None) -> str | None:
    found = cause_of_failure(address, held, now=now)
    return None if found is None else found.detail


async def cause(address: str, held: Held | None, *, now: float | None = None) -> str | None:
    return await asyncio.to_thread(sentence, address, held, now=now)


async def test_where_tls_works_there_is_no_cause(authority: TestAuthority, ann: Held) -> None:
    async with serving(authority) as address:
        assert await cause(address, ann) is None


def test_nobody_at_the_address_is_no_trouble_of_tls(ann: Held) -> None:
    assert cause_of_failure(f"127.0.0.1:{free_port()}", ann) is None


def test_an_expired_certificate_is_this_sides(authority: TestAuthority) -> None:
    held = authority.expired(Role.CLIENT, "ann")
    found = present(sentence("127.0.0.1:1", held))
    assert found.startswith("this side's certificate ended at 20")


def test_a_certificate_that_begins_later_is_a_matter_of_the_clock(authority: TestAuthority) -> None:
    found = present(sentence("127.0.0.1:1", authority.not_yet_valid(Role.CLIENT, "ann")))
    assert "set the clock" in found


async def test_another_issuer_is_named(authority: TestAuthority, ann: Held) -> None:
    async with serving(TestAuthority("fabababababababa")) as address:
        found = present(await cause(address, ann))
        assert found.startswith("TLS is intercepted by CN=")
        assert f"ask for an exception for {address}" in found


async def test_an_aggregator_that_speaks_plain_text_is_said(ann: Held) -> None:
    async with serving(None) as address:
        assert "speaks no TLS" in (await cause(address, ann) or "")


async def test_a_certificate_of_another_federation_is_what_the_aggregator_refuses(authority: TestAuthority) -> None:
    stranger = TestAuthority("fabababababababa").issue(Role.CLIENT, "ann")
    held = Held(stranger.key_pem, stranger.chain_pem, authority.roots_pem)

    async with serving(authority) as address:
        assert "another federation issued it" in (await cause(address, held) or "")


async def test_a_root_that_the_aggregator_dropped_is_said(authority: TestAuthority, ann: Held) -> None:
    later = TestAuthority("fabababababababa")
    held = Held(ann.key_pem, ann.chain_pem, authority.roots_pem + later.roots_pem)

    async with serving(later) as address:
        assert "dropped the root" in (await cause(address, held) or "")


async def test_a_wrong_clock_is_found_by_the_enrolment_port(authority: TestAuthority, ann: Held) -> None:
    async with serving(authority, demands_client=False) as enrolment:
        found = await cause(f"127.0.0.1:{free_port()}", replace(ann, enrolment=enrolment))
        assert found == "the clock here is 5.0 h behind the aggregator's; set it"
        now = time.time() + AHEAD_S
        assert await cause(f"127.0.0.1:{free_port()}", replace(ann, enrolment=enrolment), now=now) is None


async def test_an_enrolment_port_of_somebody_else_tells_no_time(ann: Held) -> None:
    async with serving(TestAuthority("fabababababababa"), demands_client=False) as enrolment:
        assert await cause(f"127.0.0.1:{free_port()}", replace(ann, enrolment=enrolment)) is None


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """A server that ends each connection at once, as firewalls do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        is_over = threading.Event()

        def answer() -> None:
            while not is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    connection.recv(10)
                    connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


def test_a_connection_that_ends_in_the_handshake_is_said(ann: Held) -> None:
    with hanging_up() as address:
        assert "handshake" in (sentence(address, ann) or "")


def test_a_cause_is_looked_for_once_for_many_failures(authority: TestAuthority) -> None:
    looks = 0
    held = authority.expired(Role.CLIENT, "ann")

    def of_now() -> Held:
        nonlocal looks
        looks += 1
        return held

    trouble = ConnectionTrouble("127.0.0.1:1", of_now)
    error = AggregatorUnavailable("no aggregator answers")
    assert {type(trouble.explained(error)) for _ in range(5)} == {TlsFailed}
    assert looks == 1


def test_without_a_cause_the_error_stays_what_it_is(ann: Held) -> None:
    error = AggregatorUnavailable("no aggregator answers")
    assert ConnectionTrouble(f"127.0.0.1:{free_port()}", lambda: ann).explained(error) is error


class Web(http.server.BaseHTTPRequestHandler):
    """A web server, as the gateway is one."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def web_server(held: Held | None = None) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    if held is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pair(context, held.key_pem, held.chain_pem)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_gateways_port_is_named(ann: Held) -> None:
    with web_server() as address:
        for held in (None, ann):
            found = cause_of_failure(address, held)
            assert type(found) is AggregatorUnavailable
            assert found.detail.startswith(
                f"what answers at {address} speaks HTTP, not gRPC: that is the gateway's port"
            )


def test_the_gateways_port_over_tls_is_named(authority: TestAuthority, ann: Held) -> None:
    with web_server(authority.issue(Role.GATEWAY, "gateway")) as address:
        assert "the gateway's port" in (sentence(address, ann) or "")


async def test_an_aggregator_in_plain_text_is_no_web_server() -> None:
    async with serving(None) as address:
        assert await cause(address, None) is None


async def test_plain_text_to_an_aggregator_with_tls_is_said(authority: TestAuthority) -> None:
    async with serving(authority) as address:
        assert "speaks TLS, and this process was started with --insecure" in (await cause(address, None) or "")


@pytest.mark.parametrize("tls", [False, True])
def test_a_name_that_nobody_knows_is_said(tls: bool, ann: Held) -> None:
    found = cause_of_failure("aggregator.invalid:50051", ann if tls else None)
    assert type(found) is AggregatorUnavailable
    assert found.detail.startswith("the name aggregator.invalid is not known here (")
    assert found.detail.endswith("mend DNS or /etc/hosts, or write the address")


def test_with_a_proxy_only_its_name_must_be_known_here() -> None:
    found = present(cause_of_failure("aggregator.invalid:50051", http_proxy="proxy.invalid:3128"))
    assert found.detail.startswith("the name proxy.invalid is not known here")
    assert cause_of_failure("aggregator.invalid:50051", http_proxy=f"127.0.0.1:{free_port()}") is None
