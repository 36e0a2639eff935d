"""Downloads are bounded in number and memory, and readers that take their time keep nobody waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from gateway.routes.dependencies import MAX_DOWNLOADS
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.served_gateway import ServedGateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    """A gateway in front of a run whose model is far larger than what sockets hold."""
    clients = [NumpyClient(name, size=2_000_000) for name in ("ann", "bob")]
    with ServedGateway(tmp_path_factory.mktemp("downloads"), clients) as gateway:
        gateway.federation.chunk_bytes = 1 << 20
        yield gateway


@pytest.fixture(scope="module")
def model_path(gateway: ServedGateway) -> str:
    run_id = gateway.create_and_finish(run={"rounds": 1})
    path = f"/v1/runs/{run_id}/model"
    assert int(gateway.http.head(path).headers["content-length"]) > 10_000_000
    return path


def slow_reader(gateway: ServedGateway, path: str) -> socket.socket:
    """A reader that has read the beginning of its answer and nothing more."""
    url = httpx.URL(gateway.url)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((url.host, url.port))
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\n\r\n".encode())
    assert reader.recv(12) == b"HTTP/1.1 200"
    return reader


def test_a_download_over_the_limit_is_refused_until_another_one_ends(gateway: ServedGateway, model_path: str) -> None:
    with ExitStack() as open_downloads:
        readers = [open_downloads.enter_context(slow_reader(gateway, model_path)) for _ in range(MAX_DOWNLOADS)]
        for path in (model_path, model_path.replace("model", "metrics.jsonl")):
            refused = gateway.http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "OVERLOADED")
            assert refused.headers["retry-after"] == "1"
            assert "downloads are running" in refused.json()["detail"]
        assert gateway.http.get("/livez").status_code == 200
        assert gateway.http.get("/v1/runs").status_code == 200, "only downloads wait for downloads"
        readers[0].close()
        while (answer := gateway.http.get(model_path)).status_code == 429:
            pass
        assert answer.status_code == 200
    while gateway.services.downloads.num_free < MAX_DOWNLOADS:
        gateway.http.get("/livez")


def test_downloads_of_readers_that_read_nothing_hold_little_memory(
    gateway: ServedGateway, model_path: str, tmp_path: Path
) -> None:
    def resident_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    gateway.http.get(model_path)
    before = resident_bytes()
    with ExitStack() as open_downloads:
        for _ in range(MAX_DOWNLOADS):
            open_downloads.enter_context(slow_reader(gateway, model_path))
        assert gateway.http.get("/livez").status_code == 200
        assert resident_bytes() - before < 64 << 20
    while gateway.services.downloads.num_free < MAX_DOWNLOADS:
        gateway.http.get("/livez")
