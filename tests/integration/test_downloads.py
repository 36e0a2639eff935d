"""Downloads are bounded in number and memory, and readers that take their time keep nobody waiting."""

from __future__ import annotations

import io
import socket
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from fedplcc.gateway.routes.dependencies import MAX_DOWNLOADS
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.records.captured_logs import logged


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


@pytest.mark.parametrize("name", ["model", "archive"])
def test_a_download_over_the_limit_is_refused_until_another_one_ends(
    gateway: ServedGateway, model_path: str, name: str
) -> None:
    read = model_path.replace("model", name)
    with ExitStack() as open_downloads:
        readers = [open_downloads.enter_context(slow_reader(gateway, read)) for _ in range(MAX_DOWNLOADS)]
        for path in (model_path, model_path.replace("model", "metrics.jsonl"), model_path.replace("model", "archive")):
            refused = gateway.http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "OVERLOADED")
            assert refused.headers["retry-after"] == "1"
            assert "downloads are running" in refused.json()["detail"]
        assert gateway.http.get("/livez").status_code == 200
        assert gateway.http.get("/v1/runs").status_code == 200, "only downloads wait for downloads"
        readers[0].close()
        while (answer := gateway.http.get(read)).status_code == 429:
            pass
        assert answer.status_code == 200
    while gateway.services.downloads.num_free < MAX_DOWNLOADS:
        gateway.http.get("/livez")


@pytest.mark.parametrize("name", ["model", "archive"])
def test_downloads_of_readers_that_read_nothing_hold_little_memory(
    gateway: ServedGateway, model_path: str, name: str
) -> None:
    def resident_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    gateway.http.get(model_path)
    before = resident_bytes()
    with ExitStack() as open_downloads:
        for _ in range(MAX_DOWNLOADS):
            open_downloads.enter_context(slow_reader(gateway, model_path.replace("model", name)))
        assert gateway.http.get("/livez").status_code == 200
        assert resident_bytes() - before < 64 << 20
    while gateway.services.downloads.num_free < MAX_DOWNLOADS:
        gateway.http.get("/livez")


@pytest.mark.parametrize("name", ["model", "archive"])
def test_readers_that_leave_are_no_crashes(gateway: ServedGateway, model_path: str, name: str) -> None:
    with logged() as lines:
        for turn in range(20):
            reader = slow_reader(gateway, model_path.replace("model", name))
            if turn % 2:
                reader.recv(1 << 16)
            reader.close()
        while gateway.services.downloads.num_free < MAX_DOWNLOADS:
            gateway.http.get("/livez")
        gateway.stop()
        gateway.start()
    assert len(lines("request")) >= 20
    assert "Traceback" not in lines.stream.getvalue()
    assert not {line["event"] for line in lines()} & {"request_crashed", "rpc_crashed", "response_broke_off"}


def test_an_archive_that_breaks_off_is_no_archive_and_gives_its_place_back(gateway: ServedGateway) -> None:
    run_id = gateway.create_and_finish(method="fedplcc", run={"rounds": 1})
    prototypes = gateway.federation.coordinator.artifact(run_id, 1, "prototypes")[1]
    assert prototypes is not None
    prototypes.write_bytes(prototypes.read_bytes()[:-8])
    pieces: list[bytes] = []
    with gateway.http.stream("GET", f"/v1/runs/{run_id}/archive") as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            pieces.extend(answer.iter_bytes())
    received = b"".join(pieces)
    assert len(received) > 10_000_000, "the model was sent before"
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(received))
    while gateway.services.downloads.num_free < MAX_DOWNLOADS:
        gateway.http.get("/livez")
