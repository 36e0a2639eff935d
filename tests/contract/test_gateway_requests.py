"""What users of an HTTP interface expect of any: HEAD, known names in queries, 409 for what is over, files, a page of it."""

from __future__ import annotations

import asyncio
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.gateway.app import ROUTES
from fedplcc.gateway.http.described.api_page import api_page
from fedplcc.gateway.http.server import KEEP_ALIVE_S
from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.remote.fetch import fetch_run
from fedplcc.shared import documents
from fedplcc.shared.wire.peer_versions import USER_AGENT
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.rest_document import rest_document
from tests.unit.aggregator.coordinator.test_best_round import Validating

document = rest_document()
READS = sorted(path for path, item in document["paths"].items() if "get" in item)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway and the id of a completed run with a best round."""
    clients = [Validating("ann"), Validating("bob")]
    with ServedGateway(tmp_path_factory.mktemp("requests"), clients) as gateway:
        yield gateway, gateway.create_and_finish(method="fedplcc", run={"rounds": 3})


def filled(path: str, run_id: str) -> str:
    values = {"run_id": run_id, "code": "NOT_FOUND", "client_id": "ann"}
    return re.sub(r"\{(\w+)\}", lambda name: values[name[1]], path)


@pytest.mark.parametrize("path", READS)
def test_head_is_served_wherever_get_is_with_its_status_and_type(served: tuple[ServedGateway, str], path: str) -> None:
    gateway, run_id = served
    at = filled(path, run_id)
    headers = {"Accept": "application/json"}
    head, get = gateway.http.head(at, headers=headers), gateway.http.get(at, headers=headers)
    assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])
    assert head.content == b""


@pytest.mark.parametrize("path", READS)
def test_a_name_that_an_operation_does_not_know_is_refused(served: tuple[ServedGateway, str], path: str) -> None:
    gateway, run_id = served
    answer = gateway.http.get(filled(path, run_id), params={"pagesize": 5}, headers={"Accept": "application/json"})
    assert answer.status_code == 400
    found = documents.Problem.model_validate_json(answer.content)
    assert found.code == "MALFORMED_REQUEST"
    assert found.detail is not None
    assert "pagesize" in found.detail or found.detail == "query: this operation takes none"
    if path == "/v1/runs":
        assert found.detail == "query: unknown name 'pagesize'; did you mean 'page_size'?"


@pytest.mark.parametrize(
    ("agent", "status"),
    [("fedplcc/99.0.0", 400), ("fedplcc/99.0.0 httpx", 400), (USER_AGENT, 200), ("Mozilla/5.0", 200)],
)
def test_a_program_of_a_version_that_is_too_far_away_is_refused_and_probes_are_not(
    served: tuple[ServedGateway, str], agent: str, status: int
) -> None:
    gateway, _ = served
    answer = gateway.http.get("/v1/runs", headers={"User-Agent": agent})
    assert answer.status_code == status
    if status == 400:
        found = documents.Problem.model_validate_json(answer.content)
        assert found.code == "VERSION_REFUSED"
        assert "the caller's is 99.0.0" in (found.detail or "")
    assert gateway.http.get("/livez", headers={"User-Agent": agent}).status_code == 200


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_steering_a_run_that_has_ended_is_a_conflict(served: tuple[ServedGateway, str], action: str) -> None:
    gateway, run_id = served
    answer = gateway.http.post(f"/v1/runs/{run_id}/{action}")
    assert (answer.status_code, answer.json()["code"]) == (409, "INVALID_TRANSITION")


def test_the_archive_has_the_files_that_the_command_fetches(served: tuple[ServedGateway, str], tmp_path: Path) -> None:
    gateway, run_id = served
    answer = gateway.http.get(f"/v1/runs/{run_id}/archive")
    assert answer.headers["content-disposition"] == f'attachment; filename="{run_id}.zip"'

    async def fetch() -> None:
        async with AsyncGateway(gateway.url) as there:
            await fetch_run(there, run_id, tmp_path)

    asyncio.run(fetch())
    fetched = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".png"}
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        found = {name.removeprefix(f"{run_id}/"): archive.read(name) for name in archive.namelist()}
    assert (
        found.keys()
        == fetched.keys()
        == {
            "run.json",
            *("metrics.jsonl", "timings.jsonl"),
            *("model.safetensors", "prototypes.safetensors"),
            *("model-best.safetensors", "prototypes-best.safetensors"),
        }
    )
    assert found == fetched


def test_an_archive_of_a_run_without_a_committed_round_is_refused_at_once(tmp_path: Path) -> None:
    with ServedGateway(tmp_path) as gateway:
        run = gateway.federation.create("fedavg")
        answer = gateway.http.get(f"/v1/runs/{run.run_id}/archive")
        assert (answer.status_code, answer.json()["code"]) == (404, "ROUND_NOT_FOUND")


def test_files_are_named_by_run_and_round(served: tuple[ServedGateway, str]) -> None:
    gateway, run_id = served
    names = {
        query: gateway.http.head(f"/v1/runs/{run_id}/model{query}").headers["content-disposition"]
        for query in ("", "?round=1", "?round=best")
    }
    assert names == {
        "": f'attachment; filename="{run_id}-model.safetensors"',
        "?round=1": f'attachment; filename="{run_id}-round-1-model.safetensors"',
        "?round=best": f'attachment; filename="{run_id}-best-model.safetensors"',
    }
    best = gateway.http.get(f"/v1/runs/{run_id}").json()["best_round"]
    models = [gateway.http.get(f"/v1/runs/{run_id}/model", params={"round": each}) for each in ("best", best)]
    assert models[0].content == models[1].content


def test_idle_connections_outlast_those_of_proxies(served: tuple[ServedGateway, str]) -> None:
    gateway, _ = served
    assert gateway._server.config.timeout_keep_alive == KEEP_ALIVE_S > 60


def test_the_page_of_the_interface_shows_every_operation_and_document_without_a_script(
    served: tuple[ServedGateway, str],
) -> None:
    gateway, _ = served
    answer = gateway.http.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    page = answer.text
    assert "<script" not in page
    assert not re.search(r"\son\w+=|style=", page)
    for route in ROUTES:
        if route.include_in_schema:
            assert f'id="{route.operation_id}"' in page
    for name in document["components"]["schemas"]:
        assert f'id="schema-{name}"' in page
    assert page.count("<p>An answer:</p>") == sum(
        any("example" in entry for status in ("200", "202") for entry in _content(operation, status))
        for operations in document["paths"].values()
        for operation in operations.values()
    )
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= set(re.findall(r"id=[\"']([^\"']+)[\"']", page))
    for asset in re.findall(r'href="((?:console/|openapi)[^"]+)"', page):
        assert gateway.http.get(f"/{asset}").status_code == 200


def _content(operation: Any, status: str) -> Any:
    return operation["responses"].get(status, {}).get("content", {}).values()


def test_what_the_document_says_is_text_and_no_markup() -> None:
    hostile: dict[str, Any] = json.loads(json.dumps(document))
    hostile["info"]["summary"] = "<script>alert(1)</script>"
    hostile["paths"]["/livez"]["get"]["summary"] = '"><img src=x onerror=alert(1)>'
    hostile["paths"]["/livez"]["get"]["responses"]["200"]["content"]["application/json"]["example"] = "<img src=x>"
    page = api_page(hostile, "console/")
    assert "<script" not in page
    assert "<img" not in page
