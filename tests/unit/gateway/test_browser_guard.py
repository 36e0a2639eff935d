import asyncio

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware

from gateway import problem
from gateway.browser_guard import BrowserGuard
from gateway.metrics import GatewayMetrics
from gateway.middleware import RequestContext
from gateway.routes import Services


@pytest.fixture
def calls():
    return []


@pytest.fixture
def app(calls):
    app = FastAPI(
        middleware=[Middleware(RequestContext), Middleware(BrowserGuard)], exception_handlers=dict(problem.HANDLERS)
    )

    async def thing():
        calls.append("called")
        return {}

    app.add_api_route("/thing", thing, methods=["GET", "POST", "PUT", "DELETE"])
    app.state.services = Services(metrics=GatewayMetrics())
    return app


def send(app, method, headers, path="/thing"):
    async def exchange():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway:8080") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(exchange())


FROM_HERE = [
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://gateway:8080"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://gateway:8080"},
    {"Origin": "https://gateway:8080"},
]
FROM_ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://other.gateway:8080"},
    {"Origin": "https://evil.example"},
    {"Origin": "http://gateway"},
    {"Origin": "http://gateway:8081"},
    {"Origin": "http://gateway:8080.evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
]


@pytest.mark.parametrize("headers", FROM_HERE)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_gateways_own_pages_and_programs_may_change_things(app, calls, method, headers):
    assert send(app, method, headers).status_code == 200
    assert calls == ["called"]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_page_of_another_origin_changes_nothing(app, calls, method, headers):
    answer = send(app, method, headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
    assert answer.headers["content-type"] == "application/problem+json"
    assert calls == []


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_links_from_other_sites_lead_here(app, calls, headers):
    assert send(app, "GET", headers).status_code == 200


def test_no_answer_lets_another_site_read_or_embed_it(app):
    for answer in (
        send(app, "GET", FROM_ELSEWHERE[0]),
        send(app, "POST", FROM_ELSEWHERE[0]),
        send(app, "GET", {}, path="/nowhere"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_refused_request_is_counted_and_has_an_id(app):
    answer = send(app, "POST", {**FROM_ELSEWHERE[0], "X-Request-ID": "seven"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "seven"
    labels = {"route": "unknown", "method": "POST", "status": "403"}
    assert app.state.services.metrics.registry.get_sample_value("fedplcc_http_requests_total", labels) == 1
