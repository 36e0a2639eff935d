import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import structlog

from fedplcc.gateway import app
from fedplcc.gateway.__main__ import main
from fedplcc.gateway.http.server import listen
from fedplcc.shared.config.settings import GatewaySettings, load
from fedplcc.shared.errors import InvalidConfig


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_an_address_of_another_machine_is_one_clear_sentence() -> None:
    with pytest.raises(InvalidConfig, match=r"^cannot listen at 192\.0\.2\.1, port 0: cannot assign"):
        listen("192.0.2.1", 0)


def test_a_name_that_nobody_knows_is_one_clear_sentence() -> None:
    with pytest.raises(InvalidConfig, match=r"cannot listen at no-such-host\.invalid"):
        listen("no-such-host.invalid", 0)


def test_a_connection_does_not_hold_back_a_body_until_its_headers_are_acknowledged() -> None:
    async def accept() -> None:
        with listen("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname()), sock.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    asyncio.run(accept())


@pytest.fixture
def own_logs() -> Iterator[None]:
    """What a process sets up for itself is taken back."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.configure(**configured)


@pytest.mark.usefixtures("own_logs")
def test_the_process_ends_with_2_when_its_port_is_taken(taken_port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(GatewaySettings(port=taken_port, insecure=True)) == app.EXIT_CONFIG
    written = capfd.readouterr().err
    assert "address already in use" in written
    assert "Traceback" not in written


@pytest.mark.usefixtures("own_logs")
def test_the_process_ends_with_2_off_loopback_without_a_certificate(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = GatewaySettings(host="0.0.0.0", port=0, state_dir=tmp_path, join_file=tmp_path / "gateway.join")
    assert app.run(settings) == app.EXIT_CONFIG
    written = capfd.readouterr().err
    assert "--plain-http" in written
    assert "Traceback" not in written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tls-cert", "a.crt"], "tls_key"),
        (["--aggregator", "nowhere"], "HOST:PORT"),
        (["--port", "70000"], "port"),
        (["--config", "/no/such/file.toml"], "cannot read"),
    ],
)
def test_settings_that_do_not_work_are_one_sentence_and_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == app.EXIT_CONFIG
    written = capsys.readouterr().err
    assert written.startswith("python -m fedplcc.gateway: ")
    assert words in written
    assert len(written.splitlines()) == 1


def test_plain_text_off_this_machine_can_be_asked_for() -> None:
    settings = load(GatewaySettings, {"host": "0.0.0.0", "aggregator": "10.0.0.7:50051", "insecure": True})
    assert (settings.host, settings.insecure) == ("0.0.0.0", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_process_answers_without_an_aggregator_and_ends_with_0_on_a_signal(number: int, taken_port: int) -> None:
    command = [
        sys.executable,
        "-m",
        "fedplcc.gateway",
        "--insecure",
        "--port",
        "0",
        "--aggregator",
        f"127.0.0.1:{taken_port}",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = json.loads(process.stderr.readline())
            assert line["event"] == "gateway_ready"
            assert httpx.get(f"http://127.0.0.1:{line['port']}/livez").json()["status"] == "ok"
            process.send_signal(number)
            assert process.wait(10) == app.EXIT_OK
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
