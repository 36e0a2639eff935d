"""`fedplcc doctor --serves` against real services: what a container's health check, a unit and a person get."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.remote.health import first_serving
from fedplcc.shared.errors import FailedPrecondition, Unavailable
from fedplcc.trainer.health import serve_health
from tests.support.federation.processes import free_port
from tests.support.federation.served_gateway import ServedGateway


def asked(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    result = CliRunner().invoke(app, ["doctor", *(word for each in arguments for word in ("--serves", each))])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout.strip(), result.stderr.strip()


def test_an_aggregator_and_its_gateway_serve_until_the_aggregator_ends(served: ServedGateway) -> None:
    aggregator = served.settings.aggregator
    assert asked(aggregator) == (0, f"{aggregator} serves", "")
    assert first_serving([aggregator], service="fedplcc.v1.RunService") == aggregator
    assert asked(served.url) == (0, f"{served.url} serves", "")
    served.stop_aggregator()
    code, text, error = asked(served.url)
    assert (code, text) == (1, "")
    assert aggregator in error, "the gateway's own words say what is away"
    assert asked(f"{served.url}/livez")[0] == 0, "the process itself lives"
    code, _, error = asked(aggregator)
    assert code == 3
    assert error.startswith(f"fedplcc: no gRPC service answers at {aggregator}; is it running")


def test_one_of_several_that_serves_is_enough_and_one_that_answers_is_heard(served: ServedGateway) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert asked(nobody, served.url) == (0, f"{served.url} serves", "")
    assert asked(served.settings.aggregator, f"http://{nobody}")[0] == 0
    served.stop_aggregator()
    code, _, error = asked(nobody, served.url)
    assert code == 1
    assert "does not serve now" in error
    assert asked(nobody, f"http://{nobody}")[0] == 3


def test_a_service_that_says_no_is_told_from_one_that_is_not_there() -> None:
    server = serve_health(lambda: False, port=0)
    try:
        address = f"127.0.0.1:{server.port}"
        assert asked(address)[0::2] == (1, f"fedplcc: {address} answers but does not serve now; its log says why")
        with pytest.raises(FailedPrecondition, match="has no service"):
            first_serving([address], service="fedplcc.v1.Nothing")
        # What speaks gRPC does not speak HTTP/1, and the other way round: nobody of that kind is there.
        assert asked(f"http://{address}")[0] in (1, 3)
    finally:
        server.close()


@contextmanager
def web_server(status: int, body: bytes) -> Iterator[str]:
    """Somebody else's web server; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>welcome</html>"), (404, b"{}"), (200, b"[1]"), (502, b"")])
def test_somebody_elses_web_server_is_no_gateway(status: int, body: bytes) -> None:
    with web_server(status, body) as address:
        code, _, error = asked(f"http://{address}")
        assert code == 1
        assert f"no gateway of fedplcc (HTTP status {status})" in error
        code, _, error = asked(address)
        assert code == 3
        assert "http://HOST:PORT" in error


def test_who_takes_the_call_and_says_nothing_is_waited_for_no_longer_than_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for asking in (address, f"http://{address}"):
            begin = time.monotonic()
            with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s"):
                first_serving([asking], timeout_s=0.2)
            assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("somewhere",), "write HOST:PORT, with a port from 1 to 65535"),
        (("127.0.0.1:99999",), "write HOST:PORT, with a port from 1 to 65535"),
        (("ftp://127.0.0.1:21",), "write http://HOST:PORT for a gateway"),
        (("http://",), "write http://HOST:PORT for a gateway"),
        (("http://host:port",), "write http://HOST:PORT for a gateway"),
        (("203.0.113.5:50051",), "use --insecure"),
        (("http://203.0.113.5:8080",), "use --insecure"),
    ],
)
def test_a_wrong_address_is_a_wrong_command_line_and_nothing_is_sent(arguments: tuple[str, ...], words: str) -> None:
    code, text, error = asked(*arguments)
    assert (code, text) == (2, "")
    assert words in error
    assert error.count("\n") == 0, "one sentence"
