import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from httpx import Response
from starlette.middleware import Middleware
from starlette.responses import Response as Answer

from fedplcc.gateway.app import create_app
from fedplcc.gateway.http import problem
from fedplcc.gateway.http.guards.cross_site_guard import CrossSiteGuard, SafeAnswers, is_named
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.http.middleware import RequestContext
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.config.settings import GatewaySettings


@pytest.fixture
def calls() -> list[Any]:
    return []


@pytest.fixture
def app(calls: list[Any]) -> FastAPI:
    app = FastAPI(
        middleware=[Middleware(RequestContext), Middleware(SafeAnswers), Middleware(CrossSiteGuard)],
        exception_handlers=dict(problem.HANDLERS),
    )

    async def thing() -> dict[str, str]:
        calls.append("called")
        return {}

    app.add_api_route("/thing", thing, methods=["GET", "POST", "PUT", "DELETE"])
    app.state.services = Services(metrics=GatewayMetrics())
    return app


def send(app: FastAPI, method: str, headers: dict[str, str], path: str = "/thing") -> Response:
    async def exchange() -> Response:
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
    {"Origin": "http://["},
]


@pytest.mark.parametrize("headers", FROM_HERE)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_gateways_own_pages_and_programs_may_change_things(
    app: FastAPI, calls: list[Any], method: str, headers: dict[str, str]
) -> None:
    assert send(app, method, headers).status_code == 200
    assert calls == ["called"]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_page_of_another_origin_changes_nothing(
    app: FastAPI, calls: list[Any], method: str, headers: dict[str, str]
) -> None:
    answer = send(app, method, headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
    assert answer.headers["content-type"] == "application/problem+json"
    assert calls == []


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_links_from_other_sites_lead_here(app: FastAPI, calls: list[Any], headers: dict[str, str]) -> None:
    assert send(app, "GET", headers).status_code == 200


@pytest.mark.parametrize("headers", [each for each in FROM_ELSEWHERE if "Sec-Fetch-Site" in each])
@pytest.mark.parametrize("use", ["image", "iframe", "empty"])
def test_a_page_of_another_site_embeds_nothing(
    app: FastAPI, calls: list[Any], headers: dict[str, str], use: str
) -> None:
    answer = send(app, "GET", {**headers, "Sec-Fetch-Dest": use})
    assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
    assert calls == []
    assert send(app, "GET", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": use}).status_code == 200
    assert send(app, "GET", {**headers, "Sec-Fetch-Dest": "document"}).status_code == 200


def test_no_answer_lets_another_site_read_or_embed_it(app: FastAPI) -> None:
    for answer in (
        send(app, "GET", FROM_ELSEWHERE[0]),
        send(app, "POST", FROM_ELSEWHERE[0]),
        send(app, "GET", {}, path="/nowhere"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_an_answer_is_kept_nowhere_unless_it_says_so_itself(app: FastAPI) -> None:
    async def page() -> Answer:
        return Answer(headers={"Cache-Control": "public", "Content-Security-Policy": "default-src 'self'"})

    app.add_api_route("/page", page)
    assert send(app, "GET", {}).headers["cache-control"] == "no-store"
    said = send(app, "GET", {}, path="/page").headers
    assert (said["cache-control"], said["content-security-policy"]) == ("public", "default-src 'self'")


def test_a_refused_request_is_counted_and_has_an_id(app: FastAPI) -> None:
    answer = send(app, "POST", {**FROM_ELSEWHERE[0], "X-Request-ID": "seven"})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "seven"
    labels = {"route": "unknown", "method": "POST", "status": "403"}
    assert app.state.services.metrics.registry.get_sample_value("fedplcc_http_requests_total", labels) == 1


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "127.8.8.8:1", "[::1]:8080", "localhost", "LOCALHOST:80", "a.localhost.:80", ""],
)
def test_names_of_loopback_are_known(host: str) -> None:
    assert is_named(host, frozenset())


# A name that leads to loopback for a moment


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "notlocalhost",
        "10.0.0.1",
        "127.0.0.1@evil.example",
        "evil.example#.localhost",
        "0.0.0.0:8080",
        "[::1",
        "[evil",
        ":",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert not is_named(host, frozenset())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_gateway_on_loopback_answers_to_names_of_loopback_only(app: FastAPI, calls: list[Any], method: str) -> None:
    app.state.services.host_names = frozenset()
    same_origin = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"}
    answer = send(app, method, same_origin)
    assert (answer.status_code, answer.json()["code"]) == (421, "MISDIRECTED_REQUEST")
    assert calls == []
    assert send(app, method, {"Host": "127.0.0.1:8080"}).status_code == 200


def test_a_gateway_that_others_reach_answers_to_any_name(app: FastAPI) -> None:
    assert send(app, "GET", {"Host": "federation.example"}).status_code == 200


def test_a_gateway_that_knows_its_names_answers_to_those_and_to_names_of_loopback(app: FastAPI) -> None:
    app.state.services.host_names = GatewaySettings(
        host="0.0.0.0", insecure=True, allowed_hosts="gateway,FL.example.org"
    ).host_names
    for host in ("gateway:8080", "fl.example.org", "FL.EXAMPLE.ORG.:443", "127.0.0.1:8080", "localhost"):
        assert send(app, "GET", {"Host": host}).status_code == 200, host
    for host in ("evil.example", "gateway.evil.example", "example.org"):
        assert send(app, "GET", {"Host": host}).status_code == 421, host


@pytest.mark.parametrize("names", ["", "a,,b", "a b", ",a", "http://a/", "a:8080", "[::1]:80"])
def test_names_that_are_none_are_refused(names: str) -> None:
    with pytest.raises(ValueError, match="write names or addresses without ports"):
        GatewaySettings(allowed_hosts=names)


@pytest.mark.parametrize(("host", "names"), [("127.0.0.1", frozenset()), ("localhost", frozenset()), ("0.0.0.0", None)])
def test_the_address_that_it_listens_at_decides(host: str, names: frozenset[Any] | None) -> None:
    services = create_app(GatewaySettings(host=host, insecure=True)).state.services
    assert services.host_names == names
