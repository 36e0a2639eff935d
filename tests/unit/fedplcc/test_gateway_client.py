"""The gateway's client: what it sends again, what it gives up, and what it makes of answers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest

from fedplcc.gateway_client import transfers
from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.gateway_client.transport import ATTEMPTS, GatewayAbsent, Transport
from fedplcc.remote.fetch import NAMED, fetch_run, manifest_of
from fedplcc.shared.codes import Code
from fedplcc.shared.documents import Event, InitialModel, RoundPage, Run
from fedplcc.shared.errors import (
    BlobTooLarge,
    FedplccError,
    Internal,
    InvalidConfig,
    RequestIdReused,
    RoundNotFound,
    RunNotFound,
    Unavailable,
)
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import RoundPhase
from tests.support.federation.certificates import TestAuthority
from tests.support.records.builders import a_round
from tests.unit.fedplcc.records import a_run_document, a_run_summary
from tests.unit.shared.wire.test_connection_trouble import serving

Result = TypeVar("Result")
MODEL = blob_ref("model", b"0123456789")


class Recorded:
    """A gateway made of canned answers, in order; the last one stays. It keeps what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def ask(self, question: Callable[[AsyncGateway], Coroutine[Any, Any, Result]]) -> Result:
        async def asked() -> Result:
            url = "http://127.0.0.1:1"
            transport = Transport(url, connections=httpx.MockTransport(self), sleep=self.sleep)
            async with AsyncGateway(url, transport=transport) as gateway:
                return await question(gateway)

        return asyncio.run(asked())


EVENTS = {"Content-Type": "text/event-stream"}


def ok(document: Run | None = None) -> httpx.Response:
    return httpx.Response(200, text=(document or a_run_document()).model_dump_json())


def problem(code: str, status: int, detail: str = "a sentence", **metadata: str) -> httpx.Response:
    body = {"type": "/v1/problems/x", "title": "X", "status": status, "code": code, "detail": detail}
    return httpx.Response(status, json={**body, "metadata": metadata or None})


def frame(number: int, event_type: str = "round_opened") -> str:
    event = Event(
        sequence=number,
        time=a_run_document().created_at,
        type=event_type,
        run_id="r",
        round=number,
        client_id=None,
        data={},
    )
    return f"id: {number}\nevent: {event_type}\ndata: {event.model_dump_json()}\n\n"


END = f"event: end\ndata: {a_run_document().model_dump_json()}\n\n"


class Whole(httpx.AsyncByteStream):
    """A body that ends after its bytes."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


class Breaking(Whole):
    """A body whose connection breaks after its bytes."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in super().__aiter__():
            yield piece
        raise httpx.ReadError("reset")


def follow(gateway: Recorded) -> list[int | str]:
    async def collect(there: AsyncGateway) -> list[int | str]:
        async with aclosing(there.follow("r")) as items:
            return [item.status.value if isinstance(item, Run) else item.sequence async for item in items]

    return gateway.ask(collect)


# Errors


def test_an_answer_that_has_no_end_is_no_gateways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedplcc.gateway_client.transport.MAX_ANSWER_BYTES", 10_000)
    packed = httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=gzip.compress(bytes(1_000_000)))
    with pytest.raises(Internal, match="its answer has no end"):
        Recorded(packed).ask(lambda there: there.get_run("r"))


@pytest.mark.parametrize("status", [200, 302, 500])
def test_a_stream_that_has_no_end_is_no_gateways(status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fedplcc.gateway_client.transport.MAX_ANSWER_BYTES", 10_000)
    monkeypatch.setattr(transfers, "MAX_EVENT", 10_000)
    for body in (b"data: x\n" * 9_000, b"x" * 90_000):
        headers, packed = {**EVENTS, "Content-Encoding": "gzip"}, gzip.compress(body)
        for use in (follow, lambda gateway: download(gateway, tmp_path)):
            with pytest.raises(Internal, match="its answer has no end"):
                use(Recorded(httpx.Response(status, headers=headers, content=packed)))
    frames = Whole(*(frame(number).encode() for number in range(1, 100)), END.encode())
    assert len(follow(Recorded(httpx.Response(200, headers=EVENTS, stream=frames)))) == 100
    assert not any(tmp_path.iterdir())


def test_an_answer_that_cannot_be_unpacked_is_a_broken_connection() -> None:
    packed = {"Content-Encoding": "gzip"}
    answers = [httpx.Response(200, headers=packed, stream=Whole(b"not packed at all")) for _ in range(ATTEMPTS)]
    with pytest.raises(Unavailable, match="broke"):
        Recorded(*answers).ask(lambda there: there.get_run("r"))


@pytest.mark.parametrize("line", ["x", "[1]", "{}", '{"round": "x"}', '{"round": 1e999}'])
def test_lines_of_rounds_that_are_none_are_no_gateways(line: str, tmp_path: Path) -> None:
    gateway = Recorded(ok(), httpx.Response(200, text=f"{line}\n"))
    with pytest.raises(Internal, match="no fedplcc gateway"):
        gateway.ask(lambda there: fetch_run(there, "r", tmp_path))


@pytest.mark.parametrize("found", [{}, {"run_id": "r"}, {**dict.fromkeys(NAMED, ""), "run_id": "another"}])
def test_a_run_json_of_another_run_is_no_gateways(found: dict[str, str]) -> None:
    with pytest.raises(Internal, match="not of run r"):
        Recorded(httpx.Response(200, json=found)).ask(lambda there: manifest_of(there, "r"))


def test_a_problem_document_becomes_the_error_that_it_stands_for() -> None:
    gateway = Recorded(problem("RUN_NOT_FOUND", 404, "there is no run 'x'", run_id="x"))
    with pytest.raises(RunNotFound, match="there is no run 'x'") as caught:
        gateway.ask(lambda there: there.get_run("x"))
    assert caught.value.metadata == {"run_id": "x"}
    assert len(gateway.requests) == 1


def test_a_problem_of_a_newer_gateway_keeps_its_kind_and_sentence() -> None:
    with pytest.raises(FedplccError, match="a sentence") as caught:
        Recorded(problem("SOMETHING_NEW", 409)).ask(lambda there: there.get_run("x"))
    assert caught.value.code is Code.ALREADY_EXISTS


def test_something_else_at_the_address_is_not_taken_for_a_gateway() -> None:
    for answer in (
        httpx.Response(404, text="<html>"),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json={}),
        ok(a_run_document().model_copy(update={"run_id": "/etc/x"})),  # `run fetch` makes a folder of this name
        ok(a_run_document().model_copy(update={"run_id": "../x"})),
    ):
        with pytest.raises(Internal, match="no fedplcc gateway"):
            Recorded(answer).ask(lambda there: there.get_run("x"))


def test_nobody_there_is_said_at_once_with_what_to_do() -> None:
    gateway = Recorded(httpx.ConnectError("refused"))
    with pytest.raises(GatewayAbsent, match=r"no gateway answers at http://127\.0\.0\.1:1; start one"):
        gateway.ask(lambda there: there.get_run("x"))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("has_tls", [False, True])
def test_the_aggregators_port_is_named(scheme: str, has_tls: bool) -> None:
    async def ask() -> None:
        async with (
            serving(TestAuthority() if has_tls else None) as address,
            AsyncGateway(f"{scheme}://{address}") as there,
        ):
            await there.get_run("x")

    with pytest.raises(GatewayAbsent, match="speaks gRPC, not HTTP: that is the aggregator's port"):
        asyncio.run(ask())


@pytest.mark.parametrize("url", ["", "http://", "ftp://host:1", "http://host:port", "http://[::1"])
def test_a_url_that_is_none_shows_how_to_write_one(url: str) -> None:
    with pytest.raises(InvalidConfig, match="http://HOST:PORT"):
        AsyncGateway(url)


def test_plain_text_stays_on_this_machine_unless_somebody_accepts_it() -> None:
    for url in ("http://127.0.0.1:1", "http://[::1]:1", "https://elsewhere:1"):
        assert AsyncGateway(url).url == url
    with pytest.raises(InvalidConfig, match="--insecure"):
        AsyncGateway("http://elsewhere:1")
    assert AsyncGateway("http://elsewhere:1", insecure=True).url == "http://elsewhere:1"


def test_a_runs_id_stays_one_part_of_the_path() -> None:
    gateway = Recorded(ok())
    gateway.ask(lambda there: there.get_run("../a b/ü?x#y"))
    assert gateway.requests[0].url.raw_path == b"/v1/runs/..%2Fa%20b%2F%C3%BC%3Fx%23y"


# Sending again


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    gateway = Recorded(httpx.ReadError("reset"), httpx.ReadTimeout("late"), ok())
    run = gateway.ask(lambda there: there.create_run({"run": {}}, request_id="once"))
    assert run == a_run_document()
    assert [request.headers["Idempotency-Key"] for request in gateway.requests] == ["once"] * 3
    assert {request.content for request in gateway.requests} == {b'{"run":{}}'}
    assert len(gateway.pauses) == 2
    assert gateway.pauses[0] < gateway.pauses[1] <= 5


@pytest.mark.parametrize(
    "steer",
    [
        lambda there: there.pause_run("x", now=True),
        lambda there: there.resume_run("x"),
        lambda there: there.stop_run("x", reason="enough"),
    ],
)
def test_every_attempt_to_steer_a_run_has_one_key_and_every_wish_its_own(steer: Any) -> None:
    keys = []
    for _ in range(2):
        gateway = Recorded(httpx.ReadTimeout("late"), problem("AGGREGATOR_UNAVAILABLE", 503), ok())
        gateway.ask(steer)
        keys.append({request.headers["Idempotency-Key"] for request in gateway.requests})
        assert len(gateway.requests) == 3
    assert [len(found) for found in keys] == [1, 1]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    "answer", [problem("AGGREGATOR_UNAVAILABLE", 503), problem("OVERLOADED", 429), httpx.Response(502, text="<html>")]
)
def test_who_is_away_for_now_is_asked_again_a_few_times(answer: httpx.Response) -> None:
    assert Recorded(answer, ok()).ask(lambda there: there.get_run("x")) == a_run_document()
    gateway = Recorded(answer)
    with pytest.raises(FedplccError):
        gateway.ask(lambda there: there.get_run("x"))
    assert len(gateway.requests) == ATTEMPTS


def test_a_refusal_is_not_asked_again() -> None:
    gateway = Recorded(problem("REQUEST_ID_REUSED", 409))
    with pytest.raises(RequestIdReused):
        gateway.ask(lambda there: there.create_run({}, request_id="once"))
    assert len(gateway.requests) == 1


# Events


def test_events_come_once_and_in_order_over_a_broken_connection() -> None:
    gateway = Recorded(
        httpx.Response(
            200, headers=EVENTS, stream=Breaking(frame(1).encode(), frame(2).encode(), b"id: 3\nevent: half\nda")
        ),
        httpx.ConnectError("the gateway restarts"),
        httpx.Response(200, headers=EVENTS, text=": the gateway stops\n\n"),
        httpx.Response(200, headers=EVENTS, text=frame(3) + END),
    )
    assert follow(gateway) == [1, 2, 3, "completed"]
    assert [request.headers["Last-Event-ID"] for request in gateway.requests] == ["0", "2", "2", "2"]


def test_who_follows_is_told_why_events_stopped_and_when_they_may_come_again() -> None:
    gateway = Recorded(
        httpx.Response(200, headers=EVENTS, stream=Breaking(frame(1).encode())),
        httpx.ConnectError("refused"),
        httpx.Response(200, headers=EVENTS, text=": the gateway stops\n\n"),
        httpx.Response(200, headers=EVENTS, text=frame(2) + END),
    )
    told: list[str] = []

    async def collect(there: AsyncGateway) -> None:
        async with aclosing(there.follow("r", on_trouble=told.append)) as items:
            async for _ in items:
                pass

    gateway.ask(collect)
    assert [why.partition(" http")[0] for why in told if why] == [
        "the connection to the gateway at",
        "no gateway answers at",
        "the gateway at",
    ]
    assert [bool(why) for why in told] == [False, True, True, False, True, False]


def test_a_gateway_that_was_never_there_is_not_waited_for() -> None:
    gateway = Recorded(httpx.ConnectError("refused"))
    with pytest.raises(GatewayAbsent):
        follow(gateway)
    assert gateway.pauses == []


def test_a_gateway_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PATIENCE_S", 0.0)
    gateway = Recorded(httpx.Response(200, headers=EVENTS, text=frame(1)), httpx.ConnectError("refused"))
    with pytest.raises(GatewayAbsent):
        follow(gateway)


def test_a_problem_within_the_stream_is_raised() -> None:
    body = problem("RUN_NOT_FOUND", 404).text
    gateway = Recorded(httpx.Response(200, headers=EVENTS, text=f"{frame(1)}event: problem\ndata: {body}\n\n"))
    with pytest.raises(RunNotFound):
        follow(gateway)


# Downloads


def download(gateway: Recorded, tmp_path: Path) -> tuple[bytes, list[int]]:
    file = tmp_path / "model"
    counts: list[int] = []

    def on_bytes(count: int, size_bytes: int) -> None:
        assert size_bytes == MODEL.size_bytes
        counts.append(count)

    gateway.answers.insert(0, a_round_page(RoundPhase.COMMITTED))
    gateway.ask(lambda there: there.download("r", "model", file, round_number=4, on_bytes=on_bytes))
    del gateway.requests[0]  # for the name of the model
    return file.read_bytes(), counts


def test_a_download_that_breaks_goes_on_where_it_was(tmp_path: Path) -> None:
    gateway = Recorded(
        httpx.Response(200, stream=Breaking(b"0123")),
        httpx.Response(206, stream=Breaking(b"45")),
        httpx.Response(206, content=b"6789"),
    )
    data, counts = download(gateway, tmp_path)
    assert data == b"0123456789"
    assert sum(counts) == len(data)
    assert [request.headers.get("Range") for request in gateway.requests] == [None, "bytes=4-", "bytes=6-"]
    assert {request.headers.get("If-Range") for request in gateway.requests[1:]} == {f'"{MODEL.sha256}"'}
    assert {request.url.params["round"] for request in gateway.requests} == {"4"}


def test_a_download_whose_file_changed_does_not_mix_the_two(tmp_path: Path) -> None:
    gateway = Recorded(httpx.Response(200, stream=Breaking(b"0123")), httpx.Response(200, content=b"0123456789"))
    with pytest.raises(Unavailable, match="changed"):
        download(gateway, tmp_path)


def test_a_download_that_never_moves_is_given_up(tmp_path: Path) -> None:
    gateway = Recorded(*(httpx.Response(200, stream=Breaking()) for _ in range(ATTEMPTS + 1)))
    with pytest.raises(Unavailable, match="broke"):
        download(gateway, tmp_path)
    assert len(gateway.requests) == 1 + ATTEMPTS


def a_round_page(phase: RoundPhase) -> httpx.Response:
    current = a_round(4, phase, model=MODEL, prototypes=blob_ref("prototypes", b"some"))
    return httpx.Response(200, text=RoundPage.of([current], None).model_dump_json(by_alias=True))


def test_the_results_of_a_round_are_named_once_it_has_committed() -> None:
    gateway = Recorded(a_round_page(RoundPhase.COMMITTED))
    assert gateway.ask(lambda there: there.results("r", 4)) == (MODEL, blob_ref("prototypes", b"some"))
    assert dict(gateway.requests[0].url.params) == {"after": "3", "page_size": "1"}
    for number, phase in ((4, RoundPhase.EVALUATING), (3, RoundPhase.COMMITTED)):
        with pytest.raises(RoundNotFound, match="has not committed"):
            Recorded(a_round_page(phase)).ask(partial(AsyncGateway.results, run_id="r", number=number))


# Pages


def test_pages_are_read_until_there_are_enough_runs() -> None:
    run = json.loads(a_run_summary().model_dump_json())
    pages = [
        httpx.Response(200, json={"runs": [run] * 2, "total": 4, "totals": {}, "next_page_token": "two"}),
        httpx.Response(200, json={"runs": [run] * 2, "total": 4, "totals": {}, "next_page_token": None}),
    ]
    gateway = Recorded(*pages)
    found = gateway.ask(lambda there: there.first_runs(9, status=["failed", "stopped"], tag=[], name=""))
    assert (len(found.runs), found.total) == (4, 4)
    assert all(request.url.params.get_list("status") == ["failed", "stopped"] for request in gateway.requests)
    assert "name" not in gateway.requests[0].url.params
    assert [request.url.params.get("page_token") for request in gateway.requests] == [None, "two"]
    assert len(Recorded(*pages).ask(lambda there: there.first_runs(1)).runs) == 1


def test_a_model_is_sent_whole_again_where_the_gateway_was_away_and_once_where_it_refuses(tmp_path: Path) -> None:
    data = to_bytes({"w": np.arange(5, dtype=np.float32)})
    file = tmp_path / "a model.safetensors"
    file.write_bytes(data)
    blob = blob_ref("model", data)
    stored = InitialModel.of(blob)
    answers = (problem("STORE_UNAVAILABLE", 503), httpx.Response(200, text=stored.model_dump_json()))
    counts: list[int] = []
    recorded = Recorded(*answers)
    assert recorded.ask(lambda there: there.upload_model(file, on_bytes=counts.append)) == f"sha256:{blob.sha256}"
    assert [request.content for request in recorded.requests] == [data, data]
    (request, _again) = recorded.requests
    assert (request.method, request.url.path) == ("PUT", f"/v1/models/{blob.sha256}")
    assert request.url.params["name"] == "a model.safetensors"
    assert request.headers["content-length"] == str(len(data))
    assert "transfer-encoding" not in request.headers
    assert counts == [len(data), len(data)]

    odd = tmp_path / "line\nend\u00a0\udce9.safetensors"
    odd.write_bytes(data)
    recorded = Recorded(httpx.Response(200, text=stored.model_dump_json()))
    recorded.ask(lambda there: there.upload_model(odd))
    assert recorded.requests[0].url.params["name"] == "line?end??.safetensors"

    refusing = Recorded(problem("BLOB_TOO_LARGE", 413))
    with pytest.raises(BlobTooLarge, match="a sentence"):
        refusing.ask(lambda there: there.upload_model(file))
    assert len(refusing.requests) == 1


def test_the_scheme_may_be_left_out() -> None:
    assert AsyncGateway("localhost:8080/").url == "http://localhost:8080"


def test_an_event_that_is_not_understood_is_said() -> None:
    with pytest.raises(Internal, match="not understood"):
        follow(Recorded(httpx.Response(200, headers=EVENTS, text="event: x\ndata: {}\n\n")))
