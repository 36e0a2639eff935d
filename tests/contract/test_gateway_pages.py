"""Every list of the API comes in pages of one style: `page_size`, an opaque `page_token`, and `next_page_token`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fedplcc.shared import documents
from fedplcc.shared.convert.reading.page_tokens import token_of
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.rest_document import rest_document

DOCUMENT = rest_document()
WHOLE = {"/v1/problems"}
"""Lists that the program itself makes: they are of one length."""


def lists() -> dict[str, dict[str, Any]]:
    """Path of each list, with its operation: an answer with an array of documents, and nothing that is one of them."""
    found = {}
    for path, item in DOCUMENT["paths"].items():
        content = item.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        name = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name.endswith(("Page", "List", "Kinds")):
            found[path] = item["get"]
    return found


LISTS = {path: operation for path, operation in lists().items() if path not in WHOLE}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway and the id of a run that has ended."""
    with ServedGateway(tmp_path_factory.mktemp("pages")) as gateway:
        yield gateway, gateway.create_and_finish()


def test_the_lists_are_known() -> None:
    names = {operation["operationId"] for operation in LISTS.values()}
    assert names == {
        *("list_audit", "list_clients", "list_evaluations", "list_rounds", "list_runs"),
        "get_events",
    }


@pytest.mark.parametrize("path", LISTS)
def test_a_list_has_size_and_token(path: str) -> None:
    parameters = {entry["name"]: entry for entry in LISTS[path]["parameters"]}
    assert {"page_size", "page_token"} <= parameters.keys()
    assert "maximum" in parameters["page_size"]["schema"]
    reference = LISTS[path]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    schema = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]
    assert "next_page_token" in schema["required"]
    assert not {name for name in schema["properties"] if name.startswith("next_")} - {"next_page_token"}


def text(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


BAD = {
    "a word": "nonsense",
    "a number": "57",
    "other letters": "%E2%82%AC",
    "no list": text({"rounds": 1}),
    "no text": base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="),
    "deep": base64.urlsafe_b64encode(b"[" * 700).decode().rstrip("="),
    "too long": "A" * 1025,
    **{
        f"{kind} {place}": token_of(kind, *place)
        for kind in (
            "audit",
            "rounds",
            "evaluations",
            "events/oldest_first",
            "events/newest_first",
            "clients",
            "newest",
        )
        for place in ((), (-1,), (2**64,), (True,), (1.5,), (1, 2), ("a b",), ("\0",), ("a", "b", "c"))
    },
    "another list": token_of("lists", 1),
}


@pytest.mark.parametrize("path", LISTS)
def test_a_token_that_no_page_gave_is_refused(served: tuple[ServedGateway, str], path: str) -> None:
    gateway, run_id = served
    for kind, token in BAD.items():
        answer = gateway.http.get(
            f"{path.format(run_id=run_id)}?page_token={token}", headers={"Accept": "application/json"}
        )
        found = documents.Problem.model_validate_json(answer.content)
        assert (answer.status_code, found.code) == (400, "MALFORMED_REQUEST"), (kind, answer.text)
        assert "page_token" in answer.text, kind
