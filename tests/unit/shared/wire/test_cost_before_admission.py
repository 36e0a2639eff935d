"""What a refused caller costs: its request is not decoded, whatever method it calls and however large it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2, enrol_service_pb2, round_service_pb2, run_service_pb2
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.caller import Callers
from fedplcc.shared.wire.serving.interceptor import LARGE_AT_ONCE, LARGE_WAITING
from fedplcc.shared.wire.serving.message_size import require_few_fields
from fedplcc.shared.wire.serving.places import Places
from fedplcc.shared.wire.serving.requests import LARGE_BYTES, MOST_FIELDS
from fedplcc.shared.wire.serving.server import RpcServer

FILES = (admin_service_pb2, enrol_service_pb2, round_service_pb2, run_service_pb2)
SERVICES = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
METHODS = [method for service in SERVICES for method in service.methods]
DEAREST = b"\x2a\x00" * (2 << 20)
"""Two million empty entries in 4 MiB."""
REFUSALS: list[Callable[[], errors.FedplccError]] = [
    lambda: errors.CertificateRevoked("the certificate was revoked"),
    lambda: errors.RoleForbidden("no calls of this service"),
    lambda: errors.KeyInvalid("no such key"),
    lambda: errors.TooManyCalls("too many calls", retry_after_s=1),
]


class Refusing(Callers):
    """Refuses every call."""

    def __init__(self, refusal: Callable[[], errors.FedplccError]) -> None:
        super().__init__(None)
        self._refusal = refusal

    def admit(self, call: Any, context: Any) -> Any:
        raise self._refusal()


def handlers(decoded: list[str]) -> Iterator[grpc.GenericRpcHandler[Any, Any]]:
    """Handlers of every method of every service, whose decoder leaves a note."""

    async def one(request: Any, context: Any) -> bytes:
        return b""

    async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield b""

    make = {
        (False, False): (grpc.unary_unary_rpc_method_handler, one),
        (False, True): (grpc.unary_stream_rpc_method_handler, many),
        (True, False): (grpc.stream_unary_rpc_method_handler, one),
        (True, True): (grpc.stream_stream_rpc_method_handler, many),
    }
    for service in SERVICES:
        found = {}
        for method in service.methods:
            maker, behaviour = make[method.client_streaming, method.server_streaming]

            def decode(data: bytes, name: str = method.name) -> bytes:
                decoded.append(name)
                return data

            found[method.name] = maker(behaviour, request_deserializer=decode, response_serializer=bytes)
        yield grpc.method_handlers_generic_handler(service.full_name, found)


async def refused_by(server: Any, start: Callable[[], Any], decoded: list[str]) -> set[str]:
    """Call every method; returns those whose decoder was entered although the call was refused."""
    server.add_generic_rpc_handlers(tuple(handlers(decoded)))
    port = await start()
    async with open_aio_channel(f"127.0.0.1:{port}") as channel:
        for service in SERVICES:
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                # On the wire a request is a stream of one.
                call = channel.stream_stream(path, bytes, bytes)(iter([DEAREST]), timeout=60)
                assert await call.code() is not grpc.StatusCode.OK
    return set(decoded)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal()).__name__)
def test_no_request_of_a_refused_caller_is_decoded(
    refusal: Callable[[], errors.FedplccError], covered: Callable[[str], None]
) -> None:
    covered(f"{len(METHODS)} RPCs, {len(DEAREST) >> 20} MiB each, {type(refusal()).__name__}")

    async def search() -> set[str]:
        server = RpcServer("127.0.0.1", 0, callers=Refusing(refusal))
        try:
            return await refused_by(server._server, server.start, [])
        finally:
            await server.stop(0)

    assert asyncio.run(search()) == set()


def test_the_search_finds_a_server_that_decodes_first() -> None:
    class DecodesFirst(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = await continuation(details)

            async def refuse(request: Any, context: Any) -> bytes:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "too late")
                return b""

            decode = handler.request_deserializer
            return grpc.unary_unary_rpc_method_handler(refuse, request_deserializer=decode)

    async def search() -> set[str]:
        server = grpc.aio.server(interceptors=[DecodesFirst()], options=[("grpc.max_receive_message_length", 5 << 20)])

        async def start() -> int:
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            return port

        try:
            return await refused_by(server, start, [])
        finally:
            await server.stop(0)

    assert asyncio.run(search()) == {method.name for method in METHODS}


def test_every_large_method_is_one() -> None:
    assert set(LARGE_BYTES) <= {method.name for method in METHODS}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_admitted_caller_is_refused_millions_of_entries_before_they_are_objects(method: Any) -> None:
    kind = method.input_type
    # An entry of two bytes for the first repeated message, or else a field that nobody knows.
    entry = next((f.number for f in kind.fields if f.is_repeated and f.message_type is not None), 15)
    assert entry < 16
    data = bytes([entry << 3 | 2, 0]) * MOST_FIELDS
    require_few_fields(data, kind, MOST_FIELDS)
    with pytest.raises(errors.MalformedRequest):
        require_few_fields(data + data[:2], kind, MOST_FIELDS)


def test_fields_of_nested_messages_are_counted() -> None:
    join = round_service_pb2.JoinRequest()
    for _ in range(100):
        join.class_counts.add(class_name="a", num_examples=1)
    data = join.SerializeToString()
    require_few_fields(data, round_service_pb2.JoinRequest.DESCRIPTOR, 300)
    with pytest.raises(errors.MalformedRequest):
        require_few_fields(data, round_service_pb2.JoinRequest.DESCRIPTOR, 299)


def test_ten_thousand_classes_may_join() -> None:
    join = round_service_pb2.JoinRequest(client_id="north", instance_token="t" * 64)
    for number in range(10_000):
        join.class_counts.add(class_name=f"a class with a name of some length {number}", num_examples=2**40)
    data = join.SerializeToString()
    most = LARGE_BYTES["Join"]
    assert most is not None
    assert len(data) < most
    require_few_fields(data, round_service_pb2.JoinRequest.DESCRIPTOR, MOST_FIELDS)


def test_a_caller_waits_for_its_own_large_requests_alone() -> None:
    async def take() -> tuple[int, int, str]:
        places, end = Places(LARGE_AT_ONCE, LARGE_WAITING, "calls"), asyncio.Event()
        inside: list[str] = []

        async def hold(caller: str) -> None:
            async with places.place(caller):
                inside.append(caller)
                await end.wait()

        greedy = [asyncio.create_task(hold("greedy")) for _ in range(200)]
        await asyncio.sleep(0)
        other = asyncio.create_task(hold("other"))
        await asyncio.sleep(0)
        seen = list(inside)
        end.set()
        answers = await asyncio.gather(*greedy, other, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, errors.FedplccError)]
        assert not places._lines
        return seen.count("greedy"), len(refused), seen[-1]

    assert asyncio.run(take()) == (LARGE_AT_ONCE, 200 - LARGE_AT_ONCE - LARGE_WAITING, "other")
