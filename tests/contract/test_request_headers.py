"""Every header that the gateway reads, with values that nobody should send: it answers, and never by a crash."""

from __future__ import annotations

import ast
import asyncio
import importlib
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedplcc import gateway
from fedplcc.gateway.http.guards.rate_limits import RateLimits
from tests.support.asgi_requests import status_of
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.read_headers import HEADERS

VALUES = (
    b"",
    b" ",
    b",;,=;\"'",
    b"\xb2",  # a digit of str.isdigit that int refuses
    b"\xff\xfe\x80",
    b"\x00\x01\x7f",
    "\u0661\U0001f600".encode(),
    b"9" * 5000,  # more digits than int takes
    b"-1",
    b"1e400",
    b"http://[",
    b"//[::1%25]:99999999",
    b"bytes=" + b"9" * 5000 + b"-",
    b"Bearer \xff." + b"A" * 9000,
    b"a=" + b"(" * 5000 + b'"\\',
    b"../" * 100 + b"%00%zz{0}%s",
)
SHA256 = "0" * 64
ROUTES = (
    ("GET", "/v1/runs/{run_id}/model", b""),
    ("GET", "/v1/runs/{run_id}/events", b""),
    ("GET", "/console/app.js", b""),
    ("POST", "/v1/runs", b"{}"),
    ("POST", "/v1/runs/{run_id}/pause", b""),
    ("PUT", f"/v1/models/{SHA256}", b"x"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedGateway, str]]:
    """A gateway without limits of rates that has a listed proxy on this machine, and the id of a completed run."""
    with ServedGateway(tmp_path_factory.mktemp("headers")) as gateway:
        run_id = gateway.create_and_finish(run={"rounds": 1})
        gateway.services.rate_limits = RateLimits(1e6, 1e6, 1e6)
        gateway.services.trusted_proxies = (ipaddress.ip_network("127.0.0.0/8"),)
        yield gateway, run_id


@pytest.mark.parametrize("name", HEADERS)
def test_no_value_of_a_header_is_a_crash(served: tuple[ServedGateway, str], name: str) -> None:
    gateway, run_id = served
    assert crashes(gateway, run_id, name) == []


@pytest.mark.parametrize("name", ["authorization", "cookie", "x-fedplcc-console"])
def test_no_value_is_a_crash_where_keys_are_asked_for(
    served: tuple[ServedGateway, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, run_id = served
    monkeypatch.setattr(gateway.services, "asks_keys", True)
    assert crashes(gateway, run_id, name) == []


def test_every_header_that_the_gateway_reads_is_searched(covered: Callable[[str], None]) -> None:
    folder = Path(gateway.__file__).parent
    read = set()
    for file in folder.rglob("*.py"):
        module = ".".join(("fedplcc", "gateway", *file.relative_to(folder).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        if module != "fedplcc.gateway.__main__":
            read |= headers_read(file.read_text(), vars(importlib.import_module(module)))
    covered(f"{len(read)} headers, {len(VALUES)} values of each at {len(ROUTES)} routes")
    assert read == set(HEADERS)


@pytest.mark.parametrize(
    "source",
    [
        "request.headers.get('X-Planted', '')",
        "Headers(scope=scope).get(NAME)",
        "headers.getlist(NAME)",
        "NAME in headers",
        "request.headers['x-planted'].strip()",
        "Header(alias='X-Planted')",
    ],
)
def test_the_search_finds_a_header_that_is_new(source: str) -> None:
    assert headers_read(source, {"NAME": "X-Planted"}) == {"x-planted"}


def crashes(gateway: ServedGateway, run_id: str, name: str) -> list[tuple[str, str, bytes]]:
    """Requests with a value of a header that the gateway answered with 500."""

    async def ask() -> list[tuple[str, str, bytes]]:
        found = []
        for value in VALUES:
            asked = [(method, path.format(run_id=run_id), body) for method, path, body in ROUTES]
            statuses = await asyncio.gather(*(_status(gateway.app, *each, name, value) for each in asked))
            found += [(*each[:2], value[:20]) for each, status in zip(asked, statuses, strict=True) if status == 500]
        return found

    return gateway.run(ask())


def headers_read(source: str, names: Mapping[str, Any]) -> set[str]:
    """Headers that a module reads, in lower case.

    Args:
        source: Its text.
        names: Its globals.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        read: ast.expr | None = None
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="get" | "getlist"), args=[first, *_]) if _is_headers(of):
                read = first
            case ast.Compare(left=first, ops=[ast.In() | ast.NotIn()], comparators=[of]) if _is_headers(of):
                read = first
            case ast.Subscript(value=ast.Attribute() as of, slice=first, ctx=ast.Load()) if _is_headers(of):
                read = first
            case ast.Call(func=ast.Name(id="Header"), keywords=[*given]):
                read = next(each.value for each in given if each.arg == "alias")
        if isinstance(read, ast.Name):
            found.add(str(names[read.id]).lower())
        elif read is not None:
            found.add(str(ast.literal_eval(read)).lower())
    return found


def _is_headers(value: ast.expr) -> bool:
    return ast.unparse(value).lower().endswith(("headers", "headers(scope=scope)"))


async def _status(app: Any, method: str, path: str, body: bytes, name: str, value: bytes) -> int:
    given: dict[str, str | bytes] = {
        "host": "localhost",
        "content-type": "application/json",
        "content-length": str(len(body)),
    }
    given["last-event-id"] = "1000000"  # so that a stream only ends
    return await status_of(app, method, path, given | {name: value}, body)
