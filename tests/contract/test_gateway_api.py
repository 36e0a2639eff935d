"""The gateway keeps what its OpenAPI document promises, and answers every error with a problem document."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from fedplcc.gateway.app import MAX_BODY_BYTES, ROUTES, create_app
from fedplcc.gateway.http import problem
from fedplcc.shared import documents
from fedplcc.shared.config.settings import GatewaySettings
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.rest_document import rest_document

EXAMPLES = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]

document = rest_document()
api = schemathesis.openapi.from_dict(document)
OPERATIONS = [
    (method, path, operation) for path, item in document["paths"].items() for method, operation in item.items()
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway and the id of a run that has ended."""
    with ServedGateway(tmp_path_factory.mktemp("contract")) as gateway:
        yield gateway, gateway.create_and_finish(method="fedplcc")


@api.parametrize()
@EXAMPLES
def test_any_request_is_answered_as_documented(served: tuple[ServedGateway, str], case: schemathesis.Case[Any]) -> None:
    gateway, _ = served
    case.call_and_validate(base_url=gateway.url, checks=CHECKS, timeout=None)


@api.include(path_regex="run_id", method="GET").parametrize()
@EXAMPLES
def test_any_question_about_a_run_that_exists_is_answered_as_documented(
    served: tuple[ServedGateway, str], case: schemathesis.Case[Any]
) -> None:
    gateway, run_id = served
    case.path_parameters = {**case.path_parameters, "run_id": run_id}
    case.call_and_validate(base_url=gateway.url, checks=CHECKS, timeout=None)


def test_every_operation_documents_its_problems() -> None:
    for method, path, operation in OPERATIONS:
        problems = {
            status: entry for status, entry in operation["responses"].items() if not status.startswith(("2", "3"))
        }
        assert {"default", "500"} <= set(problems), (method, path)
        assert "422" not in problems, (method, path)
        for entry in problems.values():
            assert list(entry["content"]) == [problem.MEDIA_TYPE]
            assert entry["content"][problem.MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_every_operation_has_a_name_and_a_sentence_of_its_own() -> None:
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names) == len([route for route in ROUTES if route.include_in_schema])
    assert all(operation["summary"] for _, _, operation in OPERATIONS)


def test_the_example_of_a_configuration_creates_a_run(served: tuple[ServedGateway, str]) -> None:
    gateway, _ = served
    body = document["paths"]["/v1/runs"]["post"]["requestBody"]["content"]["application/json"]
    assert gateway.http.post("/v1/runs", json=body["example"]).status_code == 202


def test_the_document_is_served(served: tuple[ServedGateway, str]) -> None:
    gateway, _ = served
    assert gateway.http.get("/openapi.json").json() == json.loads(json.dumps(document))


REFUSED = [
    ("POST", "/", {}, 405, "METHOD_NOT_ALLOWED"),
    ("GET", "/console/", {}, 404, "NOT_FOUND"),
    ("GET", "/console/no-such-file.js", {}, 404, "NOT_FOUND"),
    ("GET", "/console/..%2Froutes.py", {}, 404, "NOT_FOUND"),
    ("GET", "/v1/nothing", {}, 404, "NOT_FOUND"),
    ("GET", "/v1/runs/", {}, 404, "NOT_FOUND"),
    ("POST", "/v1/runs/no-such-run/restart", {}, 404, "NOT_FOUND"),
    ("DELETE", "/v1/runs", {}, 405, "METHOD_NOT_ALLOWED"),
    ("BREW", "/v1/runs", {}, 405, "METHOD_NOT_ALLOWED"),
    ("POST", "/livez", {}, 405, "METHOD_NOT_ALLOWED"),
    ("GET", "/v1/runs/no-such-run/stop", {}, 405, "METHOD_NOT_ALLOWED"),
    ("GET", "/v1/problems/NO_SUCH_PROBLEM", {}, 404, "NOT_FOUND"),
    ("GET", "/v1/runs/no%20such%20run", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs/no-such-run%00", {}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/clients/ann/release", {}, 404, "RUN_NOT_FOUND"),
    ("POST", "/v1/runs/no-such-run/clients/a%20b/quarantine", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?page_size=0", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?page_size=201", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?page_token=no-such-run", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?status=lost", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?order=oddest", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?show=none", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?since=yesterday", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?since=2026-11-23T00:00:00", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?tag=two%20words", {}, 400, "MALFORMED_REQUEST"),
    ("GET", f"/v1/runs?{'&'.join(['tag=a'] * 17)}", {}, 400, "MALFORMED_REQUEST"),
    ("GET", f"/v1/runs?name={'a' * 129}", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs?name=%00", {}, 400, "MALFORMED_REQUEST"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"notes": "x"}}, 404, "RUN_NOT_FOUND"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"tags": ["two words"]}}, 400, "MALFORMED_REQUEST"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"tags": ["a"] * 17}}, 400, "MALFORMED_REQUEST"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"notes": "x" * 4001}}, 400, "MALFORMED_REQUEST"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"notes": "a\0b"}}, 400, "MALFORMED_REQUEST"),
    ("PATCH", "/v1/runs/no-such-run", {"json": {"name": "x"}}, 400, "MALFORMED_REQUEST"),
    ("DELETE", "/v1/runs/no-such-run", {}, 404, "RUN_NOT_FOUND"),
    ("DELETE", "/v1/clients/nobody", {}, 404, "CLIENT_NOT_FOUND"),
    ("GET", "/v1/runs/no-such-run/rounds?after=last", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs/no-such-run/rounds?page_size=1001", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs/no-such-run/events?after=9223372036854775808", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs/no-such-run/model?round=2147483648", {}, 400, "MALFORMED_REQUEST"),
    ("GET", "/v1/runs/no-such-run/prototype-map?round=-1", {}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs", {}, 415, "UNSUPPORTED_MEDIA_TYPE"),
    ("POST", "/v1/runs", {"json": a_document(), "headers": {"Sec-Fetch-Site": "cross-site"}}, 403, "CROSS_ORIGIN"),
    ("POST", "/v1/runs/no-such-run/stop", {"headers": {"Origin": "https://evil.example"}}, 403, "CROSS_ORIGIN"),
    ("POST", "/v1/runs", {"data": {"run": "x"}}, 415, "UNSUPPORTED_MEDIA_TYPE"),
    ("POST", "/v1/runs", {"json": []}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs", {"json": {}}, 400, "INVALID_CONFIG"),
    ("POST", "/v1/runs", {"json": a_document("fedplc")}, 400, "INVALID_CONFIG"),
    ("POST", "/v1/runs", {"json": a_document(run={"rounds": 0})}, 400, "INVALID_CONFIG"),
    ("POST", "/v1/runs", {"json": a_document(run={"rounds": 10**400})}, 400, "INVALID_CONFIG"),
    ("POST", "/v1/runs", {"json": {}, "headers": {"Idempotency-Key": "two words"}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs", {"json": {}, "headers": {"Idempotency-Key": "k" * 129}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs", {"json": {"pad": "x" * MAX_BODY_BYTES}}, 413, "CONTENT_TOO_LARGE"),
    ("POST", "/v1/run-configuration/check", {}, 415, "UNSUPPORTED_MEDIA_TYPE"),
    ("POST", "/v1/run-configuration/check", {"json": []}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/run-configuration/check", {"json": {"pad": "x" * MAX_BODY_BYTES}}, 413, "CONTENT_TOO_LARGE"),
    ("POST", "/v1/runs/no-such-run/stop", {"json": {"why": "x"}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/stop", {"json": {"reason": "x" * 501}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/pause", {"json": {"now": "perhaps"}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/pause", {"content": b"{"}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/pause", {"json": {"now": 1}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/extend", {"json": {"rounds": True}}, 400, "MALFORMED_REQUEST"),
    ("POST", "/v1/runs/no-such-run/extend", {"json": {"rounds": "4"}}, 400, "MALFORMED_REQUEST"),
    *(
        (method, f"/v1/runs/no-such-run{path}", {}, 404, "RUN_NOT_FOUND")
        for method, path in (
            ("GET", ""),
            ("GET", "/manifest"),
            ("GET", "/rounds"),
            ("GET", "/metrics.jsonl"),
            ("GET", "/timings.jsonl"),
            ("GET", "/evaluations"),
            ("GET", "/events"),
            ("GET", "/events?after=0"),
            ("GET", "/model"),
            ("GET", "/prototypes?round=3"),
            ("GET", "/prototype-map"),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/stop"),
        )
    ),
]


@pytest.mark.parametrize(("method", "path", "options", "status", "code"), REFUSED)
def test_what_is_wrong_is_refused_with_a_problem_document(
    served: tuple[ServedGateway, str], method: str, path: str, options: dict[str, Any], status: int, code: str
) -> None:
    gateway, _ = served
    answer = gateway.http.request(method, path, **options)
    assert (answer.status_code, answer.headers["content-type"]) == (status, problem.MEDIA_TYPE), answer.text
    found = documents.Problem.model_validate_json(answer.content)
    assert (found.status, found.code) == (status, code)
    assert found.instance == httpx.URL(gateway.url).join(path).path
    assert found.request_id == answer.headers["x-request-id"]
    assert found.detail
    kind = documents.ProblemKind.model_validate_json(gateway.http.get(found.type).content)
    assert (kind.code, kind.status, kind.title, kind.type) == (code, status, found.title, found.type)


def test_a_refused_method_is_told_which_are_served(served: tuple[ServedGateway, str]) -> None:
    gateway, run_id = served
    allowed = {path: gateway.http.put(path).headers["allow"] for path in ("/v1/runs", f"/v1/runs/{run_id}/model")}
    assert allowed == {"/v1/runs": "GET, HEAD, POST", f"/v1/runs/{run_id}/model": "GET, HEAD"}


def test_a_malformed_request_says_what_is_wrong_where(served: tuple[ServedGateway, str]) -> None:
    gateway, run_id = served
    answer = gateway.http.get(f"/v1/runs/{run_id}/rounds", params={"after": "last", "page_size": 0})
    found = documents.Problem.model_validate_json(answer.content)
    assert found.errors is not None
    assert [entry.location for entry in found.errors] == ["query.after", "query.page_size"]


def test_problems_are_listed_with_their_descriptions(served: tuple[ServedGateway, str]) -> None:
    gateway, _ = served
    kinds = documents.ProblemKinds.model_validate_json(gateway.http.get("/v1/problems").content).problems
    assert {kind.code for kind in kinds} == set(problem.KINDS)


async def test_the_application_begins_and_ends_without_an_aggregator() -> None:
    app = create_app(GatewaySettings(insecure=True))
    async with app.router.lifespan_context(app):
        assert not app.state.services.stopping.is_set()
    assert app.state.services.stopping.is_set()
