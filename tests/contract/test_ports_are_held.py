"""Every port that a service opens is in a table here, with what holds it against each way of wearing it out.

Ports are found in the code. One that is new fails until it has a row, and a row names a test for each way, or a reason why
there is nothing to try.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

import pytest

from tests.support import ROOT

FOLDERS = ("aggregator", "gateway", "shared", "trainer")
OPENERS = (
    *("add_insecure_port", "add_secure_port"),
    *("create_server", "create_unix_server", "start_server", "start_unix_server"),
)
"""Functions that open a port."""
SERVERS = ("TCPServer", "WSGIServer", "HTTPServer", "ThreadingHTTPServer", "UnixStreamServer")
"""Classes whose objects open one."""


class Kind(StrEnum):
    """A way of wearing a port out."""

    SILENCE = "connections that say nothing, at the limit and 50 more"
    HALF = "half a handshake or request"
    RESETS = "calls that are opened and reset at full speed, on many connections"
    FRAMES = "frames without end that are no calls"
    ADDRESS = "more connections of one address than it may have"
    MEMBER = "more connections of one certificate than it may have"


GATEWAY = "tests/integration/test_gateway_connections.py"
HOSTILE = "tests/integration/test_hostile_connections.py"
CONNECTIONS = "tests/unit/shared/wire/test_connections.py"
NO_STREAMS = "none: HTTP/1.1, a request at a time"
OWNER = "none: a Unix socket that its owner alone may open"
HERE = "none: plain text on loopback for this machine's own check, 8 calls at a time"
SILENT = f"{HOSTILE} test_silent_connections_at_the_limit_and_50_more_leave_others_served"
RESET = f"{HOSTILE} test_streams_opened_and_reset_on_many_connections_cancel_no_call_of_another"
FLOOD = f"{HOSTILE} test_frames_that_are_no_calls_end_their_connection_and_leave_others_served"
ADDRESS = f"{CONNECTIONS} test_of_an_address_with_too_many_the_oldest_strangers_end"
MEMBER = f"{CONNECTIONS} test_of_a_certificate_with_too_many_the_one_that_was_not_used_longest_ends"
SHARES = "tests/unit/shared/process/test_sockets.py test_shares_of_addresses_and_a_reserve_for_this_machine"
FULL = f"{GATEWAY} test_an_address_with_too_many_connections_leaves_the_others_served"

GRPC = {
    Kind.SILENCE: SILENT,
    Kind.HALF: SILENT,
    Kind.RESETS: RESET,
    Kind.FRAMES: FLOOD,
    Kind.ADDRESS: ADDRESS,
    Kind.MEMBER: MEMBER,
}
PORTS: Mapping[str, Mapping[Kind, str]] = {
    "aggregator/admin_socket.py AdminSocket.start add_insecure_port": dict.fromkeys(Kind, OWNER),
    "gateway/http/server.py listen create_server": {
        Kind.SILENCE: FULL,
        Kind.HALF: FULL,
        Kind.RESETS: NO_STREAMS,
        Kind.FRAMES: NO_STREAMS,
        Kind.ADDRESS: FULL,
        Kind.MEMBER: "none: callers show keys in requests, which are counted",
    },
    "shared/process/metrics.py _Server WSGIServer": {
        Kind.SILENCE: SILENT,
        Kind.HALF: SILENT,
        Kind.RESETS: NO_STREAMS,
        Kind.FRAMES: NO_STREAMS,
        Kind.ADDRESS: SHARES,
        Kind.MEMBER: SHARES,
    },
    "shared/wire/serving/server.py RpcServer._bound add_insecure_port": GRPC,
    "shared/wire/serving/server.py RpcServer._bound add_secure_port": GRPC,
    "trainer/health.py serve_health add_insecure_port": dict.fromkeys(Kind, HERE),
}
PLANTED = """
import asyncio, socket
from http import server as http

class Door:
    async def open(self):
        self._server = await asyncio.start_server(self._met, "0.0.0.0", 7000)

class Scraped(http.ThreadingHTTPServer):
    pass

listening = socket.create_server(("", 7001))
"""


def ports_in(tree: ast.AST, where: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each port by the class and function that opens it, and by what it is opened."""
    for node in ast.iter_child_nodes(tree):
        inside, name = where, ""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*where, node.name)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
        if name in OPENERS or name in SERVERS:
            yield " ".join((*([".".join(where)] if where else []), name))
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                name = ast.unparse(base).rpartition(".")[2]
                if name in SERVERS:
                    yield f"{'.'.join(inside)} {name}"
        yield from ports_in(node, inside)


def test_every_port_has_a_row(covered: Callable[[str], None]) -> None:
    found = {
        f"{path.relative_to(ROOT)} {port}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for port in ports_in(ast.parse(path.read_text()))
    }
    covered(f"{len(found)} ports, {len(Kind)} ways to wear each out")
    assert sorted(found - PORTS.keys()) == [], "ports that are not in the table"
    assert sorted(PORTS.keys() - found) == [], "rows of the table without a port"


@pytest.mark.parametrize("port", PORTS)
def test_a_row_names_for_each_kind_a_test_that_is_there_or_a_reason(port: str) -> None:
    assert set(PORTS[port]) == set(Kind)
    for held_by in PORTS[port].values():
        if not held_by.startswith("none: "):
            file, _, test = held_by.partition(" ")
            assert f"\ndef {test}(" in (ROOT / file).read_text(), held_by


@pytest.mark.parametrize("port", ["Door.open start_server", "Scraped ThreadingHTTPServer", "create_server"])
def test_a_planted_port_is_found(port: str) -> None:
    assert list(ports_in(ast.parse(PLANTED))).count(port) == 1
