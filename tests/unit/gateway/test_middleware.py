import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Never

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Message
from structlog.testing import capture_logs

from fedplcc.gateway.app import ROUTES, create_app
from fedplcc.gateway.http import problem
from fedplcc.gateway.http.described.operations import documented_answers
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.http.middleware import BodyLimit, RequestContext
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import InvalidTransition
from fedplcc.shared.process import log
from fedplcc.shared.process.log import get_logger
from tests.support.records.captured_logs import logged

LIMIT = 100


@contextmanager
def logging_to(stream: io.StringIO) -> Iterator[None]:
    """The JSON lines of our loggers go to the stream; logging is afterwards as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    log.set_up("debug", json=True, stream=stream)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


async def echo(request: Request) -> JSONResponse:
    body = await request.body()
    return JSONResponse({"size": len(body), "request_id": request.state.request_id})


async def crash(request: Request) -> Never:
    raise KeyError("a secret")


async def crash_late(request: Request) -> StreamingResponse:
    async def content() -> AsyncIterator[bytes]:
        yield b"beginning"
        raise KeyError("a secret")

    return StreamingResponse(content())


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI(
        middleware=[Middleware(RequestContext), Middleware(BodyLimit, small_bytes=LIMIT)],
        exception_handlers=dict(problem.HANDLERS),
    )
    app.add_api_route("/echo", echo, methods=["POST"])
    app.add_api_route("/crash", crash, response_model=None)
    app.add_api_route("/crash-late", crash_late)
    app.state.services = Services(metrics=GatewayMetrics())
    return app


def send(app: FastAPI, method: str, path: str, **options: Any) -> httpx.Response:
    async def exchange() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
            return await client.request(method, path, **options)

    return asyncio.run(exchange())


def test_a_request_keeps_the_id_that_it_came_with(app: FastAPI) -> None:
    answer = send(app, "POST", "/echo", headers={"X-Request-ID": "from-the-proxy.7"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "from-the-proxy.7"


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, 'a"b', "a\tb"])
def test_an_id_that_could_harm_the_log_is_replaced(app: FastAPI, given: str) -> None:
    answer = send(app, "POST", "/echo", headers={"X-Request-ID": given})
    assert answer.headers["x-request-id"] != given
    assert len(answer.headers["x-request-id"]) == 32


def test_what_nobody_foresaw_is_a_problem_with_a_fixed_text(app: FastAPI) -> None:
    with capture_logs() as lines:
        answer = send(app, "GET", "/crash")
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text
    assert [line["event"] for line in lines] == ["request_crashed", "request"]


def test_each_request_writes_one_line(app: FastAPI) -> None:
    with capture_logs() as lines:
        send(app, "POST", "/echo", content=b"12345")
    (line,) = lines
    assert line["event"] == "request"
    assert (line["method"], line["path"], line["route"]) == ("POST", "/echo", "/echo")
    assert (line["status"], line["is_complete"], line["log_level"]) == (200, True, "info")
    assert line["duration_s"] >= 0


def test_the_line_says_what_was_asked_for_and_why_it_was_refused(app: FastAPI) -> None:
    async def refuse(request: Request) -> Never:
        get_logger("fedplcc.gateway.http.bodies.sse").warning("on_the_way")
        raise InvalidTransition("the run has ended", run_id="r-1")

    app.add_api_route("/v1/runs/{run_id}/clients/{client_id}/release", refuse, methods=["POST"], response_model=None)
    stream = io.StringIO()
    with logging_to(stream):
        send(app, "POST", "/v1/runs/r-1/clients/ann/release?round=3", content=b"12345")
        send(app, "POST", "/echo", content=b"12345")
    on_the_way, line, other = (json.loads(line) for line in stream.getvalue().splitlines())
    named = {"run_id": "r-1", "client_id": "ann", "round": 3, "request_id": line["request_id"]}
    assert on_the_way | named == on_the_way
    refused = {"reason": "INVALID_TRANSITION", "detail": "the run has ended", "status": 409, "level": "warning"}
    assert line | named | refused == line
    assert other["received_bytes"] == 5
    assert other["sent_bytes"] > 0
    assert not {"run_id", "client_id", "round", "reason"} & other.keys(), "nothing of one request is bound in the next"


@pytest.mark.parametrize(
    ("method", "path", "level"),
    [
        ("POST", "/echo", "info"),
        ("GET", "/there", "debug"),
        ("GET", "/r/model", "info"),
        ("GET", "/nowhere", "info"),
        ("GET", "/echo", "warning"),
        ("GET", "/crash", "error"),
    ],
)
def test_what_only_reads_is_said_quietly_and_failures_are_not(app: FastAPI, method: str, path: str, level: str) -> None:
    for route in ("/there", "/r/model"):
        app.add_api_route(route, lambda: {"ok": True})
    with capture_logs() as lines:
        send(app, method, path)
    assert lines[-1]["log_level"] == level


def test_each_response_is_counted_by_route_method_and_status(app: FastAPI) -> None:
    send(app, "POST", "/echo")
    send(app, "GET", "/nowhere/1")
    send(app, "GET", "/nowhere/2")
    send(app, "BREW", "/nowhere/3")

    def count(route: str, method: str, status: str) -> float | None:
        labels = {"route": route, "method": method, "status": status}
        registry: CollectorRegistry = app.state.services.metrics.registry
        return registry.get_sample_value("fedplcc_http_requests_total", labels)

    assert count("/echo", "POST", "200") == 1
    assert count("unknown", "GET", "404") == 2
    assert count("unknown", "other", "404") == 1


def test_open_requests_are_shown(app: FastAPI) -> None:
    registry = app.state.services.metrics.registry
    during = []

    async def look() -> JSONResponse:
        during.append(registry.get_sample_value("fedplcc_http_requests_in_flight"))
        return JSONResponse({"ok": True})

    app.add_api_route("/look", look)
    send(app, "GET", "/look")
    assert during == [1]
    assert registry.get_sample_value("fedplcc_http_requests_in_flight") == 0


def test_every_status_that_the_api_documents_has_its_series_from_the_start() -> None:
    metrics = create_app(GatewaySettings(insecure=True)).state.services.metrics
    shown = {
        (sample.labels["method"], sample.labels["route"], int(sample.labels["status"]))
        for family in metrics.requests.collect()
        for sample in family.samples
    }
    assert shown == {(*route, status) for *route, statuses in documented_answers(ROUTES) for status in statuses}
    assert ("POST", "/v1/runs", 409) in shown
    assert ("GET", "/v1/runs/{run_id}/model", 206) in shown
    num_series = sum(len(family.samples) for family in metrics.registry.collect())
    assert num_series < 1300


def test_a_body_at_the_limit_is_taken(app: FastAPI) -> None:
    assert send(app, "POST", "/echo", content=b"x" * LIMIT).json()["size"] == LIMIT


def test_an_announced_body_over_the_limit_is_refused_unread(app: FastAPI) -> None:
    answer = send(app, "POST", "/echo", content=b"x" * (LIMIT + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "CONTENT_TOO_LARGE")
    assert answer.json()["detail"] == f"the body has more than {LIMIT} bytes"


def test_a_body_that_turns_out_to_be_over_the_limit_is_refused(app: FastAPI) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(LIMIT):
            yield b"xx"

    answer = send(app, "POST", "/echo", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "CONTENT_TOO_LARGE")


def test_a_response_that_breaks_off_is_logged_and_left_incomplete(app: FastAPI) -> None:
    sent = []

    async def scene() -> None:
        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError("nothing is sent")

        async def note(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": "/crash-late", "headers": [], "query_string": b""}
        await app({**scope, "asgi": {"spec_version": "2.3"}}, receive, note)

    with capture_logs() as lines:
        asyncio.run(scene())
    assert [line["event"] for line in lines] == ["request_crashed", "request"]
    assert lines[-1]["is_complete"] is False
    assert sent[-1].get("more_body") is True
    registry = app.state.services.metrics.registry
    assert registry.get_sample_value("fedplcc_http_requests_in_flight") == 0
    assert lines[-1]["sent_bytes"] == len(b"beginning"), "what had left before it broke off"


def test_a_thousand_refused_requests_are_a_line_and_another_callers_is_there(app: FastAPI) -> None:
    async def ask(address: str, path: str, content: bytes, times: int) -> None:
        transport = httpx.ASGITransport(app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            for _ in range(times):
                assert (await client.post(path, content=content)).status_code in (404, 413)

    large = b"x" * (LIMIT + 1)
    with logged("info") as lines:
        asyncio.run(ask("10.0.0.1", "/echo", large, 500))
        asyncio.run(ask("10.0.0.1", "/no/" + "://:::" * 2000, b"", 500))
        assert len(lines.stream.getvalue()) < 8000
        asyncio.run(ask("10.0.0.2", "/echo", large, 1))
    assert [(line["peer"], line["status"]) for line in lines("request")] == [
        ("10.0.0.1", 413),
        ("10.0.0.1", 404),
        ("10.0.0.2", 413),
    ]


def test_a_bug_that_a_thousand_requests_meet_is_one_traceback(app: FastAPI) -> None:
    with logged("info") as lines:
        for _ in range(20):
            send(app, "GET", "/crash")
    assert [line["event"] for line in lines()] == ["request_crashed", "request"]
    assert "a secret" in lines()[0]["exception"]
