"""Every answer of the OpenAPI document has an example that is one."""

from __future__ import annotations

import json
import re

import pytest
from pydantic import TypeAdapter

from fedplcc.gateway.http.described.examples import BINARY, REF, VALUES
from fedplcc.gateway.http.problem import KINDS
from fedplcc.shared import documents
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.rest_document import rest_document

document = rest_document()


ANSWERS = [
    (f"{operation['operationId']}-{status}-{kind}", status, entry)
    for operations in document["paths"].values()
    for operation in operations.values()
    for status, answer in operation["responses"].items()
    for kind, entry in answer.get("content", {}).items()
]
"""Name, status and content of every answer."""


def test_every_answer_with_text_has_an_example() -> None:
    for name, _status, entry in ANSWERS:
        is_bytes = entry.get("schema", {}).get("format") == BINARY
        assert ("example" in entry) is not is_bytes, name


def test_an_example_is_read_by_the_record_of_its_answer_and_has_each_of_its_fields() -> None:
    of_records = [each for each in ANSWERS if REF in str(each[2].get("schema", {}).get("$ref"))]
    assert len(of_records) > 100
    for answer, status, entry in of_records:
        name, example = entry["schema"]["$ref"].removeprefix(REF), entry["example"]
        TypeAdapter(getattr(documents, name)).validate_json(json.dumps(example))
        properties = document["components"]["schemas"][name]["properties"]
        if name != "Problem":
            assert example.keys() == properties.keys(), answer
            continue
        assert example.keys() <= properties.keys(), answer
        assert KINDS[example["code"]].status == example["status"], answer
        assert status in ("default", str(example["status"])), answer


def test_every_value_is_used() -> None:
    """A field that is gone takes its value with it."""
    fields = {
        (name, field)
        for name, schema in document["components"]["schemas"].items()
        for field in schema.get("properties", {})
    }
    known = {field for _, field in fields} | {f"{name}.{field}" for name, field in fields}
    assert sorted(VALUES.keys() - known) == []


def test_links_of_an_example_lead_to_operations() -> None:
    run = document["paths"]["/v1/runs/{run_id}"]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    for link in run["links"].values():
        assert re.sub(r"/runs/[^/]+", "/runs/{run_id}", link) in document["paths"]


def test_real_answers_have_the_fields_of_the_examples(tmp_path_factory: pytest.TempPathFactory) -> None:
    with ServedGateway(tmp_path_factory.mktemp("examples")) as gateway:
        run_id = gateway.create_and_finish(method="fedplcc")
        for path in (
            "/v1/runs",
            "/v1/runs/{run_id}",
            "/v1/runs/{run_id}/rounds",
            "/v1/runs/{run_id}/events",
            "/v1/clients",
        ):
            headers = {"Accept": "application/json"}
            answer = gateway.http.get(path.replace("{run_id}", run_id), headers=headers).json()
            example = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["example"]
            assert answer.keys() == example.keys(), path
