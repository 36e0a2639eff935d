"""What the holder of a key with the scope `run`, and of one with the scope `read`, does to the gateway."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator

from tests.chaos.siege.foe import Foe, closed
from tests.support.federation.numpy_client import a_document

EVENT_STREAMS, DOWNLOADS = 256, 32


def _status(first: bytes) -> str:
    return first.decode("latin-1").split(" ")[1] if first.startswith(b"HTTP/1.1 ") else "no answer"


def _held(foe: Foe, heads: list[bytes], hold_s: float) -> Iterator[str]:
    """Begin these requests, read the first bytes of each answer, and hold them."""
    links = []
    try:
        for head in heads:
            link = foe.connected(foe.known.gateway_port)
            links.append(link)
            link.sendall(head)
            status = _status(link.recv(64))
            yield "held open" if status == "200" else status
        foe.is_over.wait(hold_s)
    finally:
        closed(links)


def event_streams(foe: Foe) -> Iterator[str]:
    """As many event streams as the gateway has places."""
    path = f"/v1/runs/{foe.known.own_run}/events"
    head = foe.request_text(path, foe.known.keys["read"], "Accept: text/event-stream\r\n")
    yield from _held(foe, [head] * EVENT_STREAMS, hold_s=5.0)


def unread_downloads(foe: Foe) -> Iterator[str]:
    """Downloads of which it reads the first bytes alone."""
    paths = ("model", "archive", "metrics.jsonl")
    heads = [foe.request_text(f"/v1/runs/{foe.known.own_run}/{path}", foe.known.keys["run"]) for path in paths]
    yield from _held(foe, heads * (DOWNLOADS // len(heads)), hold_s=5.0)


def left_downloads(foe: Foe) -> Iterator[str]:
    """Downloads that it leaves in their middle."""
    head = foe.request_text(f"/v1/runs/{foe.known.own_run}/model", foe.known.keys["run"])
    for _ in range(50):
        yield from _held(foe, [head], hold_s=0.0)


def many_runs(foe: Foe) -> Iterator[str]:
    """A hundred open runs of the honest clients, each of a thousand rounds."""
    for _ in range(150):
        document = a_document("fedavg", foe.known.honest, run={"name": secrets.token_hex(20), "rounds": 1000})
        yield foe.ask("POST", "/v1/runs", key=foe.known.keys["run"], body=json.dumps(document).encode())


def large_configurations(foe: Foe) -> Iterator[str]:
    """Configurations of almost 1 MiB, to check and to begin: the honest clients cannot do their tasks."""
    document = a_document("fedavg", foe.known.honest)
    document["data"]["classes"] = [f"{number}-{'x' * 80}" for number in range(10_000)]
    body = json.dumps(document).encode()
    for path in ("/v1/runs/configuration/check", "/v1/runs") * 20:
        yield foe.ask("POST", path, key=foe.known.keys["run"], body=body)


def initial_models(foe: Foe) -> Iterator[str]:
    """Models of 4 MB that no run has, another each time, of which one in two is none."""
    for _ in range(20):
        body = secrets.token_bytes(32) * 125_000
        yield foe.ask(
            "PUT",
            f"/v1/models/{hashlib.sha256(body).hexdigest()}",
            key=foe.known.keys["run"],
            body=body,
            headers={"Content-Type": "application/octet-stream"},
        )


def prototype_maps(foe: Foe) -> Iterator[str]:
    """Maps of prototypes, and long lists."""
    paths = ("prototype-map", "rounds?page_size=1000", "evaluations?page_size=100", "manifest")
    for path in paths * 50:
        yield foe.ask("GET", f"/v1/runs/{foe.known.own_run}/{path}", key=foe.known.keys["run"])


def long_lists(foe: Foe) -> Iterator[str]:
    """The list of clients, one of which names 10,000 classes, and that of runs."""
    for path in ("/v1/clients", "/v1/runs?page_size=200") * 50:
        yield foe.ask("GET", path, key=foe.known.keys["read"])


def refused_requests(foe: Foe) -> Iterator[str]:
    """Requests that the key does not cover, or of what is not there, each of another name."""
    for number in range(500):
        name = f"absent-{number}"
        yield foe.ask("POST", f"/v1/runs/{name}/stop", key=foe.known.keys["read"], body=b"{}")
        yield foe.ask("GET", f"/v1/runs/{name}?{'://:::' * 500}", key=foe.known.keys["read"])
