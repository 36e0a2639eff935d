"""The Python client has a typed method for each operation of the OpenAPI document, and no other."""

from __future__ import annotations

import inspect

import pytest

import fedplcc
from docs.site.gateway_client import TARGET, formatted, methods_of, text_of
from fedplcc.gateway_client.operations import AsyncOperations, Operations
from tests.support.records.rest_document import rest_document

document = rest_document()
NAMES = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}


@pytest.mark.parametrize("kind", [Operations, AsyncOperations])
def test_every_operation_is_a_method(kind: type) -> None:
    own = {name for name, value in vars(kind).items() if inspect.isfunction(value)}
    assert own == NAMES
    assert len(NAMES) > 30


def test_the_generated_file_is_up_to_date() -> None:
    assert TARGET.read_text() == formatted(text_of(document)), "run python -m docs.site.gateway_client"


def test_every_parameter_of_an_operation_can_be_given() -> None:
    for method in methods_of(document):
        arguments = set(inspect.signature(getattr(fedplcc.Gateway, method.name)).parameters)
        given = {parameter.name for parameter in method.parameters if parameter.name != "content_length"}
        assert given <= arguments, method.name


def test_coroutines_and_plain_methods_have_the_same_parameters() -> None:
    for name in NAMES:
        plain, waiting = (inspect.signature(getattr(kind, name)) for kind in (Operations, AsyncOperations))
        assert plain == waiting, name
        assert inspect.iscoroutinefunction(getattr(AsyncOperations, name))
