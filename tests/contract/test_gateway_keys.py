"""The gateway that asks for keys keeps what its OpenAPI document promises, with each scope and without a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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

from gateway.app import create_app
from shared.config.settings import GatewaySettings
from shared.identity.api_keys import Scope
from tests.support.identity.keyed_federation import Keyed

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

app = create_app(GatewaySettings())
app.state.services.federation = "f0123456789abcde"
document = app.openapi()
api = schemathesis.openapi.from_dict(document)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Keyed, dict[str, dict[str, str]]]]:
    """A federation that asks for keys, and the headers of a key with each scope."""
    with Keyed(tmp_path_factory.mktemp("keyed")) as federation:
        federation.begin()
        yield federation, {held: federation.new_key(held)[1] if held else {} for held in HELD}


@api.parametrize()
@pytest.mark.parametrize("held", HELD)
@EXAMPLES
def test_any_request_is_answered_as_documented(
    keyed: tuple[Keyed, dict[str, dict[str, str]]], held: str, case: schemathesis.Case[Any]
) -> None:
    federation, headers = keyed
    case.headers.pop("Authorization", None)
    case.cookies = {}
    case.call_and_validate(base_url=federation.gateway_url, headers=headers[held], checks=CHECKS, timeout=None)


def test_every_operation_but_the_open_ones_says_which_keys_it_takes() -> None:
    is_open = {"/livez", "/readyz", "/v1/problems", "/v1/problems/{code}", "/v1/console/sessions"}
    for path, item in document["paths"].items():
        for operation in item.values():
            assert ("security" not in operation) == (path in is_open), path
            if path not in is_open:
                assert {"401", "403"} <= set(operation["responses"]), path


def test_a_gateway_that_asks_for_no_keys_describes_none() -> None:
    plain = create_app(GatewaySettings(insecure=True)).openapi()
    assert "securitySchemes" not in plain["components"]
    assert not any("security" in operation for item in plain["paths"].values() for operation in item.values())
