"""Certificates and keys at a real server: who is let in, who is refused and why, and whose streams end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from google.protobuf.message_factory import GetMessageClass

from fedplcc.aggregator.identity.keys import Keys as KeptKeys
from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    round_service_pb2,
    round_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from fedplcc.shared.identity.api_keys import ROLES_OF_SERVICE, SCOPE_OF_CALL, Scope, includes, roles_of
from fedplcc.shared.identity.certificates import serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal, current_principal
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.caller import BURST_S, KEY_METADATA, MOST_CALLS_PER_S, Callers
from fedplcc.shared.wire.serving.interceptor import LARGE_AT_ONCE
from fedplcc.shared.wire.serving.requests import SLOW_S
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.statuses import translated
from tests.support.federation.certificates import Held, TestAuthority
from tests.support.records.captured_logs import logged

WAIT_S = 60.0
ATTEMPTS = 3
SERVICES = {
    round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]: (
        round_service_pb2_grpc.add_RoundServiceServicer_to_server
    ),
    run_service_pb2.DESCRIPTOR.services_by_name["RunService"]: run_service_pb2_grpc.add_RunServiceServicer_to_server,
    admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]: (
        admin_service_pb2_grpc.add_AdminServiceServicer_to_server
    ),
}
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
ROUND = [path for path in METHODS if "RoundService" in path]
RUN = [path for path in METHODS if "RunService" in path]
ADMIN = [path for path in METHODS if "AdminService" in path]


class Recorder:
    """A servicer of any service that writes down who calls what; its streams stay open while `is_open`."""

    def __init__(self, service: Any, entered: list[tuple[str, Principal]]) -> None:
        self.entered, self.is_open, self.begun = entered, False, asyncio.Semaphore(0)
        for method in service.methods:
            setattr(self, method.name, self._handler(method))

    def _handler(self, method: Any) -> Callable[..., Any]:
        answer = GetMessageClass(method.output_type)

        async def unary(request: Any, context: Any) -> Any:
            self.entered.append((method.name, current_principal.get()))
            if method.client_streaming:
                async for _ in request:
                    await self._opened()
            return answer()

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            self.entered.append((method.name, current_principal.get()))
            yield answer()
            await self._opened()

        return stream if method.server_streaming else unary

    async def _opened(self) -> None:
        self.begun.release()
        if self.is_open:
            await asyncio.Event().wait()


class Keys:
    """Keys by text, all of one id."""

    def __init__(self) -> None:
        self.scopes: dict[str, frozenset[Scope]] = {}

    def principal_of(self, text: str) -> Principal:
        if text not in self.scopes:
            raise errors.KeyInvalid("no such key")
        return Principal(role=None, name="", serial="", key_id="k1", scopes=self.scopes[text], address="")


class Served:
    """A server with mutual TLS and every service that clients and gateways call."""

    def __init__(
        self, authority: TestAuthority, kept: KeptKeys | None = None, calls_per_s: float = MOST_CALLS_PER_S
    ) -> None:
        self.authority, self.keys = authority, Keys()
        self.entered: list[tuple[str, Principal]] = []
        self.refused: list[tuple[Principal, str, str]] = []
        self.now = 0.0
        self.callers = Callers(
            authority.certificates,
            kept or self.keys,
            calls_per_s=calls_per_s,
            refused=lambda principal, call, error: self.refused.append((principal, call.method, error.reason)),
            steady=lambda: asyncio.get_running_loop().time() + self.now,
        )
        self.server = RpcServer("127.0.0.1", 0, tls=authority.server_tls(), callers=self.callers)
        self.recorders = {service.name: Recorder(service, self.entered) for service in SERVICES}
        self.port = 0

    async def call(self, path: str, held: Held, *, key: str = "", request: bytes = b"") -> None:
        """Make a call to its end; raises the error that it ends with."""
        async with open_aio_channel(f"127.0.0.1:{self.port}", tls=held.tls) as channel:
            with translated():
                await drain(channel, path, key=key, request=request)


async def drain(channel: grpc.aio.Channel, path: str, *, key: str = "", request: bytes = b"") -> None:
    method, options = METHODS[path], {"timeout": WAIT_S, "metadata": ((KEY_METADATA, key),) if key else None}
    given: Any = request
    if method.client_streaming:

        async def parts() -> AsyncIterator[bytes]:
            yield request

        given = parts()
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(path)(given, **options)
    if method.server_streaming:
        async for _ in call:
            pass
    else:
        await call


@contextlib.asynccontextmanager
async def serving(
    authority: TestAuthority, kept: KeptKeys | None = None, calls_per_s: float = MOST_CALLS_PER_S
) -> AsyncIterator[Served]:
    served = Served(authority, kept, calls_per_s)
    for service, register in SERVICES.items():
        served.server.add(register, served.recorders[service.name], service)
    served.port = await served.server.start()
    try:
        yield served
    finally:
        await served.server.stop(0)


@pytest.fixture(scope="module")
def authority() -> TestAuthority:
    return TestAuthority()


async def reason_of(served: Served, path: str, held: Held, *, key: str = "") -> str:
    """Call as members do: what breaks is asked again, as an upload that is refused while it is being sent may."""
    for _ in range(ATTEMPTS):
        try:
            await served.call(path, held, key=key)
        except errors.FedplccError as error:
            reason = error.reason
            if reason != errors.Unavailable.reason:
                break
        else:
            return "OK"
    return reason


async def reasons(served: Served, paths: list[str], held: Held, *, key: str = "") -> dict[str, str]:
    return {path: await reason_of(served, path, held, key=key) for path in paths}


STRANGERS: dict[str, Callable[[TestAuthority], Held]] = {
    "no": lambda authority: authority.certless(),
    "a foreign": lambda authority: Held(
        *_pair(TestAuthority("f0123456789abcde").issue(Role.CLIENT, "ann")), authority.roots_pem
    ),
    "an expired": lambda authority: authority.expired(Role.CLIENT, "ann"),
    "a not yet valid": lambda authority: authority.not_yet_valid(Role.CLIENT, "ann"),
}


def _pair(held: Held) -> tuple[bytes, bytes]:
    return held.key_pem, held.chain_pem


@pytest.mark.parametrize("kind", STRANGERS)
async def test_no_handler_of_any_rpc_is_entered_with_such_a_certificate(authority: TestAuthority, kind: str) -> None:
    async with serving(authority) as served:
        found = await reasons(served, list(METHODS), STRANGERS[kind](authority))
        assert set(found.values()) == {"AGGREGATOR_UNAVAILABLE"}
        assert len(found) == sum(len(service.methods) for service in SERVICES) >= 35
        assert served.entered == []


def test_the_line_of_a_call_says_who_made_it(authority: TestAuthority) -> None:
    async def call() -> None:
        async with serving(authority) as served:
            served.keys.scopes["good"] = frozenset({Scope.RESULTS})
            fetch, gateway = "/fedplcc.v1.RunService/FetchArtifact", authority.issue(Role.GATEWAY, "gate")
            assert await reason_of(served, fetch, gateway, key="good") == "OK"
            assert await reason_of(served, fetch, gateway, key="bad") == "KEY_INVALID"
            assert await reason_of(served, ROUND[0], authority.issue(Role.CLIENT, "ann")) == "OK"

    with logged("info") as lines:
        asyncio.run(call())
    assert [(line["caller"], line["code"]) for line in lines("rpc")] == [
        ("key:k1", "OK"),
        ("gateway:gate", "UNAUTHENTICATED"),
        ("client:ann", "OK"),
    ]
    assert "good" not in lines.stream.getvalue()


async def test_every_rpc_of_a_client_is_for_clients(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        ann, gateway = authority.issue(Role.CLIENT, "ann"), authority.issue(Role.GATEWAY, "gate")
        assert set((await reasons(served, ROUND, ann)).values()) == {"OK"}
        assert {name for name, _ in served.entered} == {path.rpartition("/")[2] for path in ROUND}
        assert {(who.role, who.name, who.address) for _, who in served.entered} == {(Role.CLIENT, "ann", "127.0.0.1")}
        served.entered.clear()
        for held in (gateway, authority.issue(Role.MONITOR, "m"), authority.server):
            assert set((await reasons(served, ROUND, held)).values()) == {"ROLE_FORBIDDEN"}
        assert served.entered == []


async def test_a_client_makes_no_call_of_gateways_but_those_about_itself(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        served.keys.scopes["all"] = frozenset({Scope.ADMIN})
        found = await reasons(served, RUN + ADMIN, authority.issue(Role.CLIENT, "ann"), key="all")
        about_itself = {path for path in ADMIN if Role.CLIENT in roles_of(path)}
        assert len(about_itself) == 2
        assert {path for path, reason in found.items() if reason == "OK"} == about_itself
        assert {reason for path, reason in found.items() if path not in about_itself} == {"ROLE_FORBIDDEN"}


def test_a_certificate_and_a_key_have_their_own_rates_of_calls(authority: TestAuthority) -> None:
    join, look = "/fedplcc.v1.RoundService/Join", "/fedplcc.v1.RunService/GetRun"

    async def call() -> None:
        loud, quiet = authority.issue(Role.CLIENT, "loud"), authority.issue(Role.CLIENT, "quiet")
        gateway = authority.issue(Role.GATEWAY, "console")
        async with serving(authority, calls_per_s=0.1) as served:
            served.keys.scopes["one"] = frozenset({Scope.READ})
            for held, path, key in ((loud, join, ""), (gateway, look, "one")):
                for _ in range(round(0.1 * BURST_S)):
                    await served.call(path, held, key=key)
                with pytest.raises(errors.TooManyCalls, match=r"more than 0\.1 calls a second; try again in [0-9]+ s"):
                    await served.call(path, held, key=key)
            await served.call("/fedplcc.v1.RoundService/Heartbeat", loud)
            await served.call("/fedplcc.v1.AdminService/RenewCertificate", loud)
            await served.call(join, quiet)
            assert {(who.caller, reason) for who, _, reason in served.refused} == {
                ("client:loud", "TOO_MANY_CALLS"),
                ("key:k1", "TOO_MANY_CALLS"),
            }
            foreign = authority.issue(Role.CLIENT, "foreign")
            with pytest.raises(errors.RoleForbidden):
                await served.call(look, foreign)
            with pytest.raises(errors.TooManyCalls):  # what is refused is counted, too
                await served.call(look, foreign)
            served.now += 60.0
            await served.call(join, loud)

    asyncio.run(call())


async def test_a_revoked_certificate_is_refused_by_every_rpc(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        for role in (Role.CLIENT, Role.GATEWAY):
            held = authority.issue(role, "gone")
            authority.revoked.add(serial(held))
            assert set((await reasons(served, list(METHODS), held)).values()) == {"CERTIFICATE_REVOKED"}
        assert served.entered == []
        assert {(who.name, reason) for who, _, reason in served.refused} == {("gone", "CERTIFICATE_REVOKED")}


def serial(held: Held) -> str:
    return serial_of(x509.load_pem_x509_certificates(held.chain_pem)[0])


@pytest.mark.parametrize("held_scope", [None, "wrong", *Scope])
async def test_a_gateway_can_do_what_the_key_that_it_passes_on_can(
    authority: TestAuthority, held_scope: str | None
) -> None:
    async with serving(authority) as served:
        gateway = authority.issue(Role.GATEWAY, "gate")
        scopes = frozenset() if held_scope in (None, "wrong") else frozenset({Scope(held_scope)})
        served.keys.scopes["key"] = scopes
        key = {None: "", "wrong": "other"}.get(held_scope, "key")
        found = await reasons(served, RUN + ADMIN, gateway, key=key)
        for path, reason in found.items():
            wanted = SCOPE_OF_CALL.get(path)
            if held_scope == "wrong":
                expected = "KEY_INVALID"
            elif wanted is None:
                expected = "OK"
            elif held_scope is None:
                expected = "KEY_INVALID"
            else:
                expected = "OK" if includes(scopes, wanted) else "SCOPE_MISSING"
            assert reason == expected, path


async def refusals_of_late_requests(
    served: Served, held: Held, key: str, path: str, revoke: Callable[[], None]
) -> list[str]:
    """Begin as many calls with large requests as go on at once and one more, revoke, and send the requests only then."""
    may_send = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await may_send.wait()
        yield b""

    async with open_aio_channel(f"127.0.0.1:{served.port}", tls=held.tls) as channel:

        async def called(requests: AsyncIterator[bytes]) -> str:
            try:
                with translated():
                    # On the wire a request is a stream of one.
                    await channel.stream_unary(path, bytes, bytes)(
                        requests, timeout=WAIT_S, metadata=((KEY_METADATA, key),) if key else None
                    )
            except errors.FedplccError as error:
                return error.reason
            return "OK"

        calls = [asyncio.create_task(called(late())) for _ in range(LARGE_AT_ONCE + 1)]
        await asyncio.sleep(SLOW_S + 0.5)
        revoke()
        may_send.set()
        return await asyncio.gather(*calls)


async def test_who_is_revoked_before_its_request_is_read_is_refused(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        ann, gateway = authority.issue(Role.CLIENT, "ann"), authority.issue(Role.GATEWAY, "gate")
        served.keys.scopes["all"] = frozenset({Scope.ADMIN})
        join, create = "/fedplcc.v1.RoundService/Join", "/fedplcc.v1.RunService/CreateRun"
        found = await refusals_of_late_requests(served, ann, "", join, lambda: authority.revoked.add(serial(ann)))
        assert set(found) == {"CERTIFICATE_REVOKED"}
        found = await refusals_of_late_requests(served, gateway, "all", create, served.keys.scopes.clear)
        assert set(found) == {"KEY_INVALID"}
        assert served.entered == []
        served.keys.scopes["all"] = frozenset({Scope.ADMIN})
        assert set(await refusals_of_late_requests(served, gateway, "all", create, lambda: None)) == {"OK"}


def test_the_services_here_are_all_that_demand_certificates() -> None:
    assert {service.full_name for service in SERVICES} == set(ROLES_OF_SERVICE)


async def test_every_rpc_of_a_client_compares_the_client_that_it_names(authority: TestAuthority) -> None:
    service = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]
    server = RpcServer("127.0.0.1", 0, tls=authority.server_tls(), callers=Callers(authority.certificates))
    # It has nothing to work with: a handler that did not compare first would crash.
    nothing: Any = None
    servicer = RoundServicer(nothing, nothing, 1.0)
    server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, servicer, service)
    port = await server.start()
    try:
        for method in service.methods:
            request: Any = GetMessageClass(method.input_type)()
            named = request if "client_id" in method.input_type.fields_by_name else request.header
            named.client_id = "bob"
            async with open_aio_channel(f"127.0.0.1:{port}", tls=authority.issue(Role.CLIENT, "ann").tls) as channel:
                path = f"/{service.full_name}/{method.name}"
                with pytest.raises(errors.IdentityMismatch, match="bob"), translated():
                    await drain(channel, path, request=request.SerializeToString())
    finally:
        await server.stop(0)


STREAMS = [path for path in ROUND if METHODS[path].client_streaming or METHODS[path].server_streaming]


@contextlib.asynccontextmanager
async def open_streams(served: Served, held: Held) -> AsyncIterator[list[asyncio.Task[None]]]:
    """One stream of each kind that a client opens, each in the middle."""
    recorder = served.recorders["RoundService"]
    recorder.is_open = True
    tasks = [asyncio.create_task(served.call(path, held)) for path in STREAMS]
    try:
        for _ in tasks:
            await asyncio.wait_for(recorder.begun.acquire(), WAIT_S)
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_revocation_ends_every_open_stream_of_its_holder_and_no_other(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        ann, bob = authority.issue(Role.CLIENT, "ann"), authority.issue(Role.CLIENT, "bob")
        async with open_streams(served, ann) as anns, open_streams(served, bob) as bobs:
            assert len(anns) >= 4
            authority.revoked.add(serial(ann))
            await asyncio.to_thread(served.callers.look_again, [serial(ann)])
            ended = await asyncio.wait_for(asyncio.gather(*anns, return_exceptions=True), WAIT_S)
            assert [type(error) for error in ended] == [errors.CertificateRevoked] * len(anns)
            assert await reason_of(served, ROUND[0], ann) == "CERTIFICATE_REVOKED"
            assert not any(task.done() for task in bobs)


async def test_the_end_of_a_certificate_ends_its_streams(authority: TestAuthority) -> None:
    async with serving(authority) as served:
        ann, bob = authority.issue(Role.CLIENT, "ann", valid_s=3600.0), authority.issue(Role.CLIENT, "bob")
        async with open_streams(served, ann) as anns, open_streams(served, bob) as bobs:
            served.now = 4000.0
            ended = await asyncio.wait_for(asyncio.gather(*anns, return_exceptions=True), WAIT_S)
            assert [type(error) for error in ended] == [errors.CertificateExpired] * len(anns)
            assert await reason_of(served, ROUND[0], ann) == "CERTIFICATE_EXPIRED"
            assert not any(task.done() for task in bobs)


async def test_a_stream_outlives_its_certificate_where_its_caller_has_shown_a_newer_one(
    authority: TestAuthority,
) -> None:
    async with serving(authority) as served:
        ann, newer = (authority.issue(Role.CLIENT, "ann", valid_s=valid_s) for valid_s in (3600.0, 7200.0))
        async with open_streams(served, ann) as anns:
            served.recorders["RoundService"].is_open = False
            assert await reason_of(served, ROUND[0], newer) == "OK"
            served.now = 4000.0
            assert await reason_of(served, ROUND[0], ann) == "CERTIFICATE_EXPIRED"
            served.callers.look_again()
            await asyncio.sleep(0)
            assert await reason_of(served, ROUND[0], newer) == "OK"
            assert not any(task.done() for task in anns)


@pytest.mark.parametrize(("left", "refusal"), [(None, errors.KeyInvalid), (Scope.METRICS, errors.ScopeMissing)])
async def test_the_end_of_a_key_or_of_its_scope_ends_the_streams_that_it_opened(
    authority: TestAuthority, left: Scope | None, refusal: type[errors.FedplccError]
) -> None:
    async with serving(authority) as served:
        gateway, recorder = authority.issue(Role.GATEWAY, "gate"), served.recorders["RunService"]
        served.keys.scopes["key"] = frozenset({Scope.READ})
        recorder.is_open = True
        task = asyncio.create_task(served.call("/fedplcc.v1.RunService/WatchRun", gateway, key="key"))
        await asyncio.wait_for(recorder.begun.acquire(), WAIT_S)
        del served.keys.scopes["key"]
        if left is not None:
            served.keys.scopes["key"] = frozenset({left})
        served.callers.look_again()
        with pytest.raises(refusal):
            await asyncio.wait_for(task, WAIT_S)


async def test_a_renewed_certificate_and_another_root_need_no_restart() -> None:
    authority, later = TestAuthority(), TestAuthority("fedcba9876543210")

    async with serving(authority) as served:
        ann = authority.issue(Role.CLIENT, "ann")
        newer = later.issue(Role.CLIENT, "ann")
        assert await reason_of(served, ROUND[0], newer) == "AGGREGATOR_UNAVAILABLE"
        first = authority.roots_pem
        authority.roots_pem += later.roots_pem
        authority.server = later.server
        assert await reason_of(served, ROUND[0], newer) == "OK"
        assert await reason_of(served, ROUND[0], ann) == "AGGREGATOR_UNAVAILABLE", "it does not know the newer root"
        assert await reason_of(served, ROUND[0], Held(*_pair(ann), authority.roots_pem)) == "OK"
        async with open_aio_channel(
            f"127.0.0.1:{served.port}", tls=Held(*_pair(ann), authority.roots_pem).tls
        ) as channel:
            await drain(channel, ROUND[0])
            authority.roots_pem = authority.roots_pem.removeprefix(first)
            served.callers.look_again()
            await asyncio.sleep(0)
            with pytest.raises(errors.Unauthenticated), translated():
                await drain(channel, ROUND[0])
