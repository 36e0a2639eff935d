"""A second gateway on another host, by the commands that are printed alone."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from tests.support.federation.forks import typed
from tests.support.federation.processes import Process, eventually, free_port
from tests.support.identity.keyed_federation import Keyed


@pytest.mark.slow
def test_a_second_gateway_serves_by_the_printed_lines(tmp_path: Path) -> None:
    with Keyed(tmp_path) as federation:
        federation.begin()
        line = federation.owner("invite", "second", "--role", "gateway", "--address", "127.0.0.1")
        there = tmp_path / "there"
        there.mkdir()
        joined = typed("join", cwd=there, given=line)
        assert joined.returncode == 0, joined.stderr
        (printed,) = re.findall(r"start it with: fedplcc (.+)", joined.stderr)
        port = free_port()
        second = Process("second", there, ["fedplcc", *printed.split(), "--port", str(port)])
        federation.processes["second"] = second
        second.start()
        ready = eventually(lambda: answer_of(f"http://127.0.0.1:{port}/readyz"), "the second gateway is ready")
        assert ready == 200


def answer_of(url: str) -> int | None:
    try:
        status = httpx.get(url).status_code
    except httpx.TransportError:
        return None
    return status if status == 200 else None
