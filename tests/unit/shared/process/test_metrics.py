"""The /metrics port of a process: what a scraper gets, and what is said when the port cannot be had."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request

import pytest

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.metrics import new_registry, serve_metrics
from fedplcc.shared.version import VERSION

LOOPBACK = "127.0.0.1"


def test_a_scraper_gets_which_service_and_version_this_is_until_the_port_is_closed() -> None:
    server = serve_metrics(new_registry("trainer"), LOOPBACK, 0)
    url = f"http://{LOOPBACK}:{server.port}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert f'fedplcc_build_info{{service="trainer",version="{VERSION}"}} 1.0' in text
    assert "\nprocess_resident_memory_bytes " in text
    assert "\nprocess_cpu_seconds_total " in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


@pytest.mark.parametrize(
    ("host", "status"), [("rebound.example", 421), ("[::1", 421), ("127.0.0.1:1", 200), ("a.localhost", 200)]
)
def test_a_name_that_leads_to_loopback_for_a_moment_reads_no_metrics(host: str, status: int) -> None:
    server = serve_metrics(new_registry("trainer"), LOOPBACK, 0)
    try:
        connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=5)
        connection.request("GET", "/metrics", headers={"Host": host})
        answer = connection.getresponse()
        assert (answer.status, b"fedplcc_" in answer.read()) == (status, status == 200)
    finally:
        server.close()


def test_a_taken_port_is_one_clear_sentence() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=rf"cannot serve metrics on {LOOPBACK}:{port}: .*; choose another port"):
            serve_metrics(new_registry("aggregator"), LOOPBACK, port)
