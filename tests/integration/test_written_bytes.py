"""What requests of REST leave behind: of every operation, sent again and again with another content, database and logs grow
by a constant and by what it is there to keep, not by whatever a caller says.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.app import create_app
from shared.config.settings import GatewaySettings
from shared.process.log import set_up, stay_quiet
from shared.types import Event
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.hosts.memory_folder import memory_folder
from tests.support.oracles.database_bytes import database_bytes

CALLS, RUNS = 40, 4
"""Requests of one operation, and open runs that they name in turn."""
CONSTANT_BYTES = 256 << 10
"""Most bytes that database and logs grow by, whatever comes."""
A_BYTE = 0.5
"""Most bytes that they grow by for each byte received, besides."""
KEPT_A_BYTE = 6.0
"""The same where a request's content is there to be kept: as a document, as an event and in the log."""
KEEPING = frozenset({"create_run", "update_run"})

OPERATIONS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    operation["operationId"]: (method, path, operation)
    for path, item in create_app(GatewaySettings()).openapi()["paths"].items()
    for method, operation in item.items()
}


def text(number: int, size: int = 1000) -> str:
    return (f"{number} " * size)[:size]


BODIES: Mapping[str, Callable[[int], Any]] = {
    "create_run": lambda number: a_document(run={"name": f"run-{number}"}),
    "check_run_configuration": lambda number: {**a_document(run={"name": text(number)}), text(number, 100): {}},
    "update_run": lambda number: {"notes": text(number), "tags": [f"tag-{number}-{tag}" for tag in range(8)]},
    "pause_run": lambda number: {"reason": text(number)},
    "stop_run": lambda number: {"reason": text(number), "now": True},
    "extend_run": lambda number: {"rounds": 5 + number},
    "quarantine_client": lambda number: {"reason": text(number)},
    "put_model": lambda number: text(number).encode(),
    "open_console_session": lambda number: {"code": text(number, 64)},
}
"""How the body of each operation that takes one is made for its n-th request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an operation: the n-th, about one of the open runs, other than all before in every part of it."""

    name: str
    number: int
    run_id: str

    def send(self, served: ServedGateway) -> int:
        """Send it and take the answer, a refusal too; returns the bytes sent, headers that say nothing left out."""
        method, path, operation = OPERATIONS[self.name]
        body = BODIES[self.name](self.number) if self.name in BODIES else None
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        names = {"run_id": self.run_id, "client_id": f"ann-{self.number}", "number": "0", "code": text(self.number, 40)}
        names["sha256"] = hashlib.sha256(content).hexdigest()
        query, headers = dict[str, str](), {"Content-Type": "application/json"}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query":
                query[parameter["name"]] = text(self.number, 200)
            elif parameter["in"] == "header":
                headers[parameter["name"]] = f"{self.number}-{'k' * 40}"
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        answer = served.http.request(method, path.format(**names), params=query, headers=headers, content=content)
        return sum(map(len, (str(answer.request.url), *headers.values()))) + len(content)


Served = tuple[ServedGateway, Path]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with memory_folder() as path, ServedGateway(Path(path)) as gateway:
        yield gateway, Path(path)


def problem(name: str, served: Served, plant: Callable[[ServedGateway, Asked], None] = lambda *_: None) -> str:
    """Send the requests of one operation; return what is wrong with what they wrote, empty if nothing."""
    gateway, folder = served
    runs = [gateway.create(run={"name": f"open-{number}"}) for number in range(RUNS)]
    before, received, lines = database_bytes(folder), 0, io.StringIO()
    set_up("info", stream=lines)
    for number in range(CALLS):
        asked = Asked(name, number, runs[number % RUNS])
        received += asked.send(gateway)
        plant(gateway, asked)
    written = database_bytes(folder) - before + len(lines.getvalue())
    stay_quiet()
    for run_id in runs:
        gateway.http.post(f"/v1/runs/{run_id}/stop", json={})
    if written <= CONSTANT_BYTES + (KEPT_A_BYTE if name in KEEPING else A_BYTE) * received:
        return ""
    return f"{CALLS} requests of {name} sent {received:,} bytes and left {written:,}"


def test_each_body_is_changed() -> None:
    with_body = {name for name, (_, _, operation) in OPERATIONS.items() if "requestBody" in operation}
    assert with_body == BODIES.keys()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if method == "get" else ())
        for name, (method, *_) in OPERATIONS.items()
    ],
)
def test_what_a_request_leaves_is_bounded(name: str, served: Served) -> None:
    assert problem(name, served) == ""


def test_a_request_that_is_written_down_whole_is_found(served: Served) -> None:
    def plant(gateway: ServedGateway, asked: Asked) -> None:
        with gateway.federation.store.transaction() as transaction:
            transaction.add_event(Event(type="client_joined", data={"all": text(asked.number, 8000)}))

    assert problem("get_run", served, plant).startswith(f"{CALLS} requests of get_run sent")
