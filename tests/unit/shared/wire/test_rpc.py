"""Errors cross the wire and stay what they are: a real server and real channels on loopback."""

import asyncio
import contextlib
import io
import itertools
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.status_pb2 import Status
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs leave it out

from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from fedplcc.shared.process import log
from fedplcc.shared.wire import channels
from fedplcc.shared.wire.backoff import backoff
from fedplcc.shared.wire.call_logs import OutgoingCalls
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.interceptor import INTERNAL_TEXT, ErrorInterceptor
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.statuses import MAX_DETAIL, translate, translated
from tests.support.federation.ports import free_port

SERVICE = round_service_pb2.DESCRIPTOR.services_by_name["RoundService"]


class Servicer(round_service_pb2_grpc.RoundServiceServicer):
    """Answers as it is told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def Heartbeat(
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> round_service_pb2.HeartbeatResponse:
        if self.error is not None:
            raise self.error
        return round_service_pb2.HeartbeatResponse()

    async def SyncRound(
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[round_service_pb2.SyncRoundResponse]:
        yield round_service_pb2.SyncRoundResponse()
        if self.error is not None:
            raise self.error

    async def UploadModel(
        self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
    ) -> round_service_pb2.UploadModelResponse:
        size = 0
        async for request in request_iterator:
            size += len(request.chunk.data)
            if self.error is not None:
                raise self.error
        return round_service_pb2.UploadModelResponse(offset_bytes=size)

    async def Join(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    servicer: Servicer, **options: Any
) -> AsyncIterator[tuple[round_service_pb2_grpc.RoundServiceStub, grpc.aio.Channel, int]]:
    server = RpcServer("127.0.0.1", 0, **options)
    server.add(round_service_pb2_grpc.add_RoundServiceServicer_to_server, servicer, SERVICE)
    port = await server.start()
    channel = open_aio_channel(f"127.0.0.1:{port}")
    try:
        yield round_service_pb2_grpc.RoundServiceStub(channel), channel, port
    finally:
        await channel.close(None)
        await server.stop(0)


async def call_unary(stub: Any) -> None:
    await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=20)


async def call_server_stream(stub: Any) -> None:
    async for _ in stub.SyncRound(round_service_pb2.SyncRoundRequest(), timeout=20):
        pass


async def call_client_stream(stub: Any) -> None:
    async def parts() -> AsyncIterator[round_service_pb2.UploadModelRequest]:
        for _ in range(3):
            yield round_service_pb2.UploadModelRequest(chunk=round_service_pb2.Chunk(data=b"x" * 1000))

    await stub.UploadModel(parts(), timeout=20)


CALLS = [call_unary, call_server_stream, call_client_stream]
KINDS = sorted(set(errors.BY_REASON.values()), key=lambda kind: kind.reason)


async def error_of(call: Callable[[Any], Awaitable[None]], error: Exception) -> BaseException:
    async with serving(Servicer(error)) as (stub, _, _):
        with pytest.raises(errors.FedplccError) as raised, translated():
            await call(stub)
        return raised.value


@pytest.mark.parametrize("call", CALLS)
def test_a_caller_of_a_version_that_is_too_far_away_is_refused_before_its_request_is_read(
    call: Callable[[Any], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict(channels.CHANNEL_OPTIONS) | {"grpc.primary_user_agent": "fedplcc/99.0.0"}
    monkeypatch.setattr(channels, "CHANNEL_OPTIONS", tuple(options.items()))

    error = asyncio.run(error_of(call, ValueError("it was read")))
    assert isinstance(error, errors.VersionRefused)
    assert "the caller's is 99.0.0" in error.detail
    assert error.metadata["caller_version"] == "99.0.0"


@pytest.mark.parametrize("call", CALLS)
def test_an_error_arrives_as_it_was_raised_from_every_kind_of_call(call: Callable[[Any], Awaitable[None]]) -> None:
    error = asyncio.run(error_of(call, errors.ChunkOutOfOrder("expected byte 7", expected_offset_bytes=7)))
    assert type(error) is errors.ChunkOutOfOrder
    assert error.detail == "expected byte 7"
    assert error.metadata == {"expected_offset_bytes": "7"}


async def test_every_error_of_the_tree_arrives_as_itself() -> None:
    servicer = Servicer()
    async with serving(servicer) as (stub, _, _):
        for kind in KINDS:
            servicer.error = kind("why not: ä", run_id="r")
            with pytest.raises(kind, match="why not: ä") as raised, translated():
                await call_unary(stub)
            assert type(raised.value) is kind
            assert raised.value.metadata == {"run_id": "r"}


@pytest.mark.parametrize("call", CALLS)
def test_a_bug_arrives_without_its_text(call: Callable[[Any], Awaitable[None]]) -> None:
    error = asyncio.run(error_of(call, KeyError("/secret/path")))
    assert type(error) is errors.Internal
    assert error.detail == INTERNAL_TEXT


def test_a_very_long_sentence_still_arrives_as_its_error() -> None:
    error = asyncio.run(error_of(call_unary, errors.InvalidConfig("ä" * 100_000)))
    assert type(error) is errors.InvalidConfig
    assert error.detail == "ä" * MAX_DETAIL


def test_a_very_long_fact_still_arrives_with_its_error() -> None:
    error = asyncio.run(error_of(call_unary, errors.RunNotFound("there is no such run", run_id="ä" * 100_000)))
    assert type(error) is errors.RunNotFound
    assert error.metadata == {"run_id": "ä" * MAX_DETAIL}


NO_ERROR_INFO = AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")


@pytest.mark.parametrize("trailer", [b"\xff", Status(code=14, details=[NO_ERROR_INFO]).SerializeToString()])
def test_bytes_that_are_no_status_are_a_failure_of_the_transport(trailer: bytes) -> None:
    class Garbled(grpc.RpcError):
        code, details = staticmethod(lambda: grpc.StatusCode.UNAVAILABLE), staticmethod(lambda: "")
        trailing_metadata = staticmethod(lambda: (("grpc-status-details-bin", trailer),))  # type: ignore[assignment]  # bytes

    assert isinstance(translate(Garbled()), errors.AggregatorUnavailable)


def test_no_aggregator_there_is_said_with_the_address() -> None:
    address = f"127.0.0.1:{free_port()}"
    with channels.open_channel(address) as channel:
        stub = round_service_pb2_grpc.RoundServiceStub(channel)
        with pytest.raises(errors.AggregatorUnavailable, match=address), translated(address):
            stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=20)


async def test_an_answer_that_does_not_come_is_unavailable() -> None:
    async with serving(Servicer()) as (stub, _, _):
        with pytest.raises(errors.Unavailable, match="in time") as raised, translated():
            await stub.Join(round_service_pb2.JoinRequest(), timeout=0.05)
        assert type(raised.value) is errors.Unavailable


async def test_a_message_over_the_limit_is_refused_on_its_way() -> None:
    async with serving(Servicer()) as (stub, _, _):
        huge = round_service_pb2.HeartbeatRequest(run_id="x" * (channels.MAX_MESSAGE_BYTES + 1))
        with pytest.raises(errors.ResourceExhausted), translated():
            await stub.Heartbeat(huge, timeout=20)


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged meanwhile, as JSON lines; logging is afterwards as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    log.set_up("info", json=True, stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


class Notes(CallObserver):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.started: list[Any] = []
        self.received: list[Any] = []
        self.sent: list[Any] = []
        self.observed: list[Any] = []

    def serves(self, method: str, kind: str) -> None:
        self.kinds[method] = kind

    def call_started(self, method: str) -> None:
        self.started.append(method)

    def received_message(self, method: str) -> None:
        self.received.append(method)

    def sent_message(self, method: str) -> None:
        self.sent.append(method)

    def ended(self, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.observed.append((method, code))


def test_every_call_leaves_one_line_and_is_observed(lines: io.StringIO) -> None:
    notes = Notes()

    async def three_calls() -> None:
        servicer = Servicer()
        async with serving(servicer, quiet=["Heartbeat"], observer=notes) as (stub, _, _):
            await call_unary(stub)
            await call_client_stream(stub)
            servicer.error = errors.NotAMember("join first")
            with pytest.raises(grpc.RpcError):
                await stub.Heartbeat(round_service_pb2.HeartbeatRequest(client_id="a", run_id="r"), timeout=20)
            servicer.error = ZeroDivisionError("secret")
            with pytest.raises(grpc.RpcError):
                await call_unary(stub)

    asyncio.run(three_calls())
    heartbeat, upload = "/fedplcc.v1.RoundService/Heartbeat", "/fedplcc.v1.RoundService/UploadModel"
    assert notes.started == [heartbeat, upload, heartbeat, heartbeat]
    assert notes.observed == [
        (heartbeat, "OK"),
        (upload, "OK"),
        (heartbeat, "PERMISSION_DENIED"),
        (heartbeat, "INTERNAL"),
    ]
    assert notes.kinds[heartbeat] == "unary"
    assert notes.kinds[upload] == "client_stream"
    assert notes.kinds["/fedplcc.v1.RoundService/SyncRound"] == "server_stream"
    assert len(notes.kinds) == len(SERVICE.methods)
    assert notes.sent == [heartbeat, upload], "a call that fails sends no message"
    assert notes.received.count(heartbeat) == 3
    assert notes.received.count(upload) > 1, "each message of a stream"
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [line["event"] for line in written] == ["rpc", "rpc", "rpc_crashed", "rpc"]
    assert (written[0]["method"], written[0]["code"]) == (upload, "OK")
    assert written[1] | {"reason": "NOT_A_MEMBER", "client_id": "a", "run_id": "r", "level": "warning"} == written[1]
    assert "ZeroDivisionError: secret" in written[2]["exception"]
    assert written[3]["level"] == "error"


def test_the_line_about_a_call_says_who_asked_for_what_and_what_moved(lines: io.StringIO) -> None:
    header = round_service_pb2.BlobHeader(run_id="r", round=3, client_id="ann", instance_token="a-token-of-ann")
    header.blob.sha256 = "ab" * 32
    sent = [
        round_service_pb2.UploadModelRequest(header=header),
        *(round_service_pb2.UploadModelRequest(chunk=round_service_pb2.Chunk(data=b"x" * 1000)) for _ in range(3)),
    ]

    class Logging(Servicer):
        async def UploadModel(
            self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]
        ) -> round_service_pb2.UploadModelResponse:
            answer = await super().UploadModel(request_iterator, context)
            await asyncio.to_thread(log.get_logger("fedplcc.aggregator.coordinator.service").info, "on_the_way")
            return answer

    async def upload() -> None:
        async with serving(Logging()) as (stub, _, _):
            answer = await stub.UploadModel(iter(sent), timeout=20, metadata=(("x-request-id", "r-7"),))
            assert answer.offset_bytes == 3000
            await call_server_stream(stub)

    asyncio.run(upload())
    on_the_way, upload_line, stream_line = (json.loads(line) for line in lines.getvalue().splitlines())
    known = {"run_id": "r", "round": 3, "client_id": "ann", "sha256": "ab" * 32, "request_id": "r-7"}
    assert on_the_way | known == on_the_way, "what the call names is bound"
    counts = {
        "received_messages": 4,
        "received_bytes": sum(message.ByteSize() for message in sent),
        "sent_messages": 1,
        "sent_bytes": round_service_pb2.UploadModelResponse(offset_bytes=3000).ByteSize(),
    }
    assert upload_line | known | counts | {"code": "OK", "level": "info"} == upload_line
    assert upload_line["peer"].startswith("127.0.0.1:")
    assert stream_line | {"received_messages": 1, "sent_messages": 1, "sent_bytes": 0} == stream_line
    assert not known.keys() & stream_line.keys(), "nothing of one call is bound in another"
    assert "a-token-of-ann" not in lines.getvalue()


async def test_a_method_is_wrapped_once_and_names_that_strangers_make_up_are_not_kept() -> None:
    path, interceptor = "/fedplcc.v1.RoundService/Join", ErrorInterceptor()
    handlers = {path: grpc.unary_unary_rpc_method_handler(call_unary)}

    async def wrapped(method: str) -> Any:
        async def found(details: Any) -> Any:
            return handlers.get(details.method)

        details: Any = SimpleNamespace(method=method)
        return await interceptor.intercept_service(found, details)

    assert await wrapped(path) is await wrapped(path)
    assert await wrapped(path + "0") is not await wrapped(path + "0")


def test_bytes_that_are_no_message_are_the_callers_mistake_and_leave_no_stack_trace(lines: io.StringIO) -> None:
    kinds = {"Heartbeat": "unary_unary", "SyncRound": "unary_stream", "UploadModel": "stream_unary"}

    async def call(channel: grpc.aio.Channel, name: str, kind: str) -> None:
        method = getattr(channel, kind)(f"/{SERVICE.full_name}/{name}", request_serializer=bytes)

        async def parts() -> AsyncIterator[bytes]:
            yield b"\xff\xff\xff"

        answer = method(parts() if kind == "stream_unary" else b"\xff\xff\xff", timeout=20)
        with pytest.raises(errors.MalformedRequest, match="not a message of this call"), translated():
            await (answer.read() if kind == "unary_stream" else answer)

    async def body() -> None:
        async with serving(Servicer()) as (_, channel, _):
            for name, kind in kinds.items():
                await call(channel, name, kind)

    asyncio.run(body())
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(line["method"].rpartition("/")[2], line["reason"]) for line in written] == [
        (name, "MALFORMED_REQUEST") for name in kinds
    ]
    assert not any("exception" in line for line in written)


def test_a_caller_that_goes_away_is_no_error(lines: io.StringIO) -> None:
    notes = Notes()

    async def leave() -> None:
        arrived = asyncio.Event()

        class Waiting(Servicer):
            async def Join(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
                arrived.set()
                await asyncio.Event().wait()

        async with serving(Waiting(), observer=notes) as (stub, _, _):
            call = stub.Join(round_service_pb2.JoinRequest())
            await arrived.wait()
            call.cancel()
            while not notes.observed:
                await asyncio.sleep(0)

    asyncio.run(leave())
    assert notes.observed == [("/fedplcc.v1.RoundService/Join", "CANCELLED")]
    assert [json.loads(line)["level"] for line in lines.getvalue().splitlines()] == ["info"]


def test_an_answer_to_a_caller_that_left_leaves_no_stack_trace_of_grpcs_own_but_other_errors_do(
    lines: io.StringIO,
) -> None:
    log.set_up("debug", json=True, stream=lines)

    def failing(error: Exception) -> Any:
        async def fail(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            raise error

        return grpc.unary_unary_rpc_method_handler(fail)

    def register(_servicer: object, server: Any) -> None:
        methods = {"Leave": failing(cygrpc.ExecuteBatchError("core")), "Fail": failing(RuntimeError("a bug"))}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("elsewhere.Service", methods),))

    async def call() -> None:
        server = RpcServer("127.0.0.1", 0)
        server.add(register, None, SERVICE)
        async with open_aio_channel(f"127.0.0.1:{await server.start()}") as channel:
            for name in ("Fail", "Leave"):
                answer = channel.unary_unary(f"/elsewhere.Service/{name}", None, None)(b"", timeout=20)
                written = lines.getvalue()
                while lines.getvalue() == written:
                    await asyncio.sleep(0)
                answer.cancel()
        await server.stop(0)

    asyncio.run(call())
    bug, left = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (bug["level"], bug["logger"]) == ("error", "grpc._cython.cygrpc")
    assert "a bug" in bug["exception"]
    assert (left["level"], left["event"], left["logger"]) == ("debug", "answer_not_sent", "rpc")
    assert "/elsewhere.Service/Leave" in left["detail"]
    assert "exception" not in left


async def test_a_taken_port_is_said_in_a_sentence() -> None:
    async with serving(Servicer()) as (_, _, port):
        with pytest.raises(errors.InvalidConfig, match=f"127.0.0.1:{port}: the port is taken"):
            await RpcServer("127.0.0.1", port).start()


def test_plain_text_off_loopback_is_refused_on_both_ends() -> None:
    with pytest.raises(errors.InvalidConfig, match="--insecure"):
        RpcServer("0.0.0.0", 0)
    with pytest.raises(errors.InvalidConfig, match="--insecure"):
        channels.open_channel("example.org:50051")
    channels.open_channel("example.org:50051", insecure=True).close()


def test_waiting_grows_to_its_bound_and_is_never_the_same_for_two() -> None:
    first = list(itertools.islice(backoff(random.Random(1)), 12))
    second = list(itertools.islice(backoff(random.Random(2)), 12))
    limits = [min(0.2 * 2**attempt, 5.0) for attempt in range(12)]
    for wait, limit in zip(first, limits, strict=True):
        assert limit / 2 <= wait <= limit
    assert first != second
    assert first == list(itertools.islice(backoff(random.Random(1)), 12))


def test_calls_that_are_made_say_each_failure_once_loudly_and_nothing_of_what_works(lines: io.StringIO) -> None:
    log.set_up("debug", json=True, stream=lines)
    made = OutgoingCalls("127.0.0.1:1", quiet=["Heartbeat"])

    def call(method: str, error: Exception | None = None, is_wanted: bool = True) -> None:
        with contextlib.suppress(errors.FedplccError), made.logged(method, lambda: is_wanted):
            if error is not None:
                raise error

    away, refused = errors.AggregatorUnavailable("nobody answers"), errors.RoundClosed("too late", round=3)
    call("CommitUpdate")
    for error in (away, away, refused, None, refused):
        call("CommitUpdate", error)
    call("Heartbeat", away)
    call("SyncRound", away, is_wanted=False)
    written = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {line["event"] for line in written} == {"call_failed"}
    assert [(line["method"], line["reason"], line["level"]) for line in written] == [
        ("CommitUpdate", "AGGREGATOR_UNAVAILABLE", "warning"),
        ("CommitUpdate", "AGGREGATOR_UNAVAILABLE", "debug"),
        ("CommitUpdate", "ROUND_CLOSED", "warning"),
        ("CommitUpdate", "ROUND_CLOSED", "warning"),
        ("Heartbeat", "AGGREGATOR_UNAVAILABLE", "debug"),
    ]
    assert written[2] | {"round": 3, "detail": "too late", "address": "127.0.0.1:1"} == written[2] | {"round": 3}
    assert all(line["duration_s"] >= 0 for line in written)


def test_no_fact_that_a_peer_sends_makes_a_failed_call_fail_otherwise(lines: io.StringIO) -> None:
    log.set_up("debug", json=True, stream=lines)
    foreign = errors.from_reason("NEW_REASON", "no", {"event": "e", "level": "l", "method": "m", "round": "3"}, 5)
    with pytest.raises(type(foreign)), OutgoingCalls("127.0.0.1:1").logged("GetRun"):
        raise foreign
    line = json.loads(lines.getvalue())
    assert line | {"event": "call_failed", "level": "warning", "method": "GetRun", "round": "3"} == line
