"""The gateway that asks for keys keeps what its OpenAPI document promises, with each scope and without a key."""

from __future__ import annotations

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
)

from fedplcc.gateway.app import create_app
from fedplcc.gateway.http.described.api_page import api_page
from fedplcc.gateway.http.guards.key_guard import SESSION_END_PATH
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.identity.api_keys import Scope, includes
from tests.support.federation.numpy_client import a_document
from tests.support.identity.keyed_federation import Keyed
from tests.support.records.rest_document import rest_document

EXAMPLES = settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
HELD = ("", *Scope)
"""Scopes of keys; empty for no key."""
COVERING = ("", Scope.RUN)
"""No key, and one that some routes take and others refuse."""

app = create_app(GatewaySettings())
app.state.services.federation = "f0123456789abcde"
document = app.openapi()
api = schemathesis.openapi.from_dict(
    document, config=schemathesis.Config.from_dict({"phases": {"coverage": {"enabled": False}}})
)
"""Without the cases of every bound of every field: test_gateway_api.py tries those on a gateway that asks for no keys."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Keyed, dict[str, dict[str, str]]]]:
    """A federation that asks for keys, and the headers of a key with each scope."""
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.begin()
        yield federation, {held: federation.new_key(held)[1] if held else {} for held in HELD}


@api.parametrize()
@pytest.mark.parametrize(
    "held", [pytest.param(held, marks=() if held in COVERING else pytest.mark.full) for held in HELD]
)
@EXAMPLES
def test_any_request_is_answered_as_documented(
    keyed: tuple[Keyed, dict[str, dict[str, str]]], held: str, case: schemathesis.Case[Any]
) -> None:
    federation, headers = keyed
    case.headers.pop("Authorization", None)
    case.cookies = {}
    ends_its_key = held and case.operation.path == SESSION_END_PATH
    given = federation.new_key(held)[1] if ends_its_key else headers[held]
    case.call_and_validate(base_url=federation.gateway_url, headers=given, checks=CHECKS, timeout=None)


def test_every_operation_but_the_open_ones_says_which_keys_it_takes() -> None:
    is_open = {"/livez", "/readyz", "/v1/problems", "/v1/problems/{code}", "/v1/console/sessions"}
    is_open |= {"/v1/sign-on", "/v1/sign-on/terminal", "/v1/sign-on/terminal/poll"}
    for path, item in document["paths"].items():
        for operation in item.values():
            assert ("security" not in operation) == (path in is_open), path
            if path not in is_open:
                assert {"401", "403"} <= set(operation["responses"]), path


def test_a_gateway_that_asks_for_no_keys_describes_none() -> None:
    plain = rest_document()
    assert "securitySchemes" not in plain["components"]
    assert not any("security" in operation for item in plain["paths"].values() for operation in item.values())


def test_every_operation_names_the_scope_that_a_key_needs(keyed: tuple[Keyed, dict[str, dict[str, str]]]) -> None:
    """Every operation is asked for with a key of each scope; only SCOPE_MISSING counts, whatever else is answered."""
    federation, headers = keyed
    assert wrong_scopes(federation.gateway_url, {scope: headers[scope] for scope in Scope}) == []


def wrong_scopes(url: str, headers: dict[Scope, dict[str, str]]) -> list[tuple[str, str, str | None, int]]:
    """Operations whose answer to a key of some scope is not what the document says of it."""
    bodies: dict[str, Any] = {"create_run": a_document("fedavg", ("ann",)), "extend_run": {"rounds": 9}}
    names = {"client_id": "nobody", "sha256": "0" * 64, "receiver": "nobody"}
    with httpx.Client(base_url=url, timeout=60) as client:
        created = client.post("/v1/runs", json=a_document("fedavg", ("ann",)), headers=headers[Scope.RUN])
        assert created.status_code == 202, created.text
        names["run_id"] = created.json()["run_id"]
        wrong = []
        for path, item in document["paths"].items():
            for method, operation in item.items():
                if "security" not in operation or operation["operationId"] == "end_session":
                    continue
                (wanted,) = operation["security"][0]["key"] or [None]
                for held in Scope:
                    body = bodies.get(operation["operationId"], {} if "requestBody" in operation else None)
                    target = path.format(**names)
                    with client.stream(method.upper(), target, headers=headers[held], json=body) as answer:
                        refused = (
                            answer.status_code == 403 and answer.read() and answer.json()["code"] == "SCOPE_MISSING"
                        )
                    allowed = wanted is None or includes([held], Scope(wanted))
                    if bool(refused) is allowed:
                        wrong.append((operation["operationId"], held.value, wanted, answer.status_code))
    return wrong


def test_the_page_of_the_api_says_which_key_an_operation_needs() -> None:
    page = api_page(document, "console/")
    for scope in ("read", "results", "run", "admin", "metrics"):
        assert f"<p>Needs a key with the scope <code>{scope}</code>.</p>" in page
    assert "<p>Needs a key.</p>" in page
    assert "Needs a key" not in api_page(rest_document(), "console/")
