"""Connections by which one caller tries to shut the others out of an aggregator in a process of its own.

The hostile caller comes from an address of its own, 127.0.0.2 and so on: 127.0.0.1 has no bound, and one that was barred
stays so for a while.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from fedplcc.remote.admin_calls import admin_calls
from fedplcc.shared.gen.fedplcc.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.resources import SERVICE_FILES, most_files
from tests.chaos.siege.mutant import VARIABLE
from tests.support.federation.hostile_connections import hostile
from tests.support.federation.http2_frames import HEADERS, SETTINGS, call_headers, frame, more_of_a_head
from tests.support.federation.processes import Federation, Process, eventually
from tests.support.identity.issued import channel_of
from tests.support.identity.joined_federation import admit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONNECTIONS, STREAMS, NUM_CALLS = 16, 300, 40
NUMBERS = itertools.count(2)
WAIT_S = 15.0
"""Deadline of an honest call: long for a busy machine, and shorter than silent connections are borne."""
HALF_A_HELLO = "1603010200"
FILES = SERVICE_FILES
"""Open files that the aggregator may have: as few as it starts with."""
MOST = (FILES - 128) // 2


@contextmanager
def limited(folder: Path, module: str = "aggregator", **environment: str) -> Iterator[Federation]:
    """An aggregator with few open files."""
    with Federation(folder) as federation:
        state = folder / "aggregator"
        limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
        ports = [text for flag in ("--port", "--metrics-port", "--enrol-port") for text in (flag, "0")]
        process = federation.processes["aggregator"] = Process(
            "aggregator",
            folder,
            (module, "--state-dir", str(state), *ports),
            prefix=(sys.executable, "-c", f"{limit}; os.execv(sys.argv[1], sys.argv[1:])"),
        )
        process.environment = environment
        federation.start_aggregator()
        yield federation


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with limited(tmp_path_factory.mktemp("federation")) as federation:
        yield federation


@pytest.fixture
def stranger() -> str:
    return f"127.0.0.{next(NUMBERS)}"


@pytest.fixture
def call(federation: Federation) -> Iterator[Callable[[], object]]:
    """A call by an operator, over a connection that is there already."""
    with channel_of(federation.address, federation.operator_tls) as channel:
        runs: Any = run_service_pb2_grpc.RunServiceStub(channel)

        def list_runs() -> object:
            return runs.ListRuns(run_service_pb2.ListRunsRequest(), timeout=WAIT_S)

        list_runs()
        yield list_runs


def ended_of(federation: Federation, peer: str, why: str = "calls in vain") -> list[dict[str, Any]] | None:
    """The lines that say that connections of an address were ended, for calls that they made in vain."""
    found = (json.loads(line) for line in federation.processes["aggregator"].log().splitlines() if line[:1] == "{")
    ended = [line for line in found if line["event"] == "connections_ended" and line["peer"] == peer]
    return ended if any(line["reason"] == why for line in ended) else None


def audited(federation: Federation, caller: str, address: str) -> bool:
    """Whether there is a refusal of this caller, at this address, for too many calls."""
    with channel_of(federation.address, federation.operator_tls) as channel:
        admin: Any = admin_service_pb2_grpc.AdminServiceStub(channel)
        entries = admin.ListAudit(admin_service_pb2.ListAuditRequest(page_size=1000), timeout=WAIT_S).entries
    return any((each.caller, each.reason, each.address) == (caller, "TOO_MANY_CALLS", address) for each in entries)


@pytest.mark.parametrize(
    ("who", "path"),
    [
        ("member", "/fedplcc.v1.RoundService/Heartbeat"),
        ("revoked", "/fedplcc.v1.RoundService/NoSuch"),
        ("stranger", "/fedplcc.v1.EnrolService/Enrol"),
    ],
)
def test_streams_opened_and_reset_on_many_connections_cancel_no_call_of_another(
    who: str, path: str, federation: Federation, call: Callable[[], object], stranger: str, tmp_path: Path
) -> None:
    port, certificate = federation.enrol_port, ""
    if who != "stranger":
        admit(federation.state, Role.CLIENT, who, tmp_path, domain="a")
        port, certificate = federation.port, str(tmp_path / IDENTITY_FILE)
    if who == "revoked":
        with admin_calls(federation.state) as calls:
            calls.revoke("client", who)
    attack = {"port": port, "source": stranger, "connections": CONNECTIONS, "streams": STREAMS}
    with hostile(kind="resets", path=path, certificate=certificate, **attack):
        for number in range(NUM_CALLS):
            call()  # raises for a call that is cancelled
            if number % 20 == 5:
                admit(federation.state, Role.CLIENT, f"{who}-{number}", tmp_path / str(number), domain="a")
            time.sleep(0.05)
        ended = eventually(lambda: ended_of(federation, stranger), "the attack is in the log")
    assert len(ended) <= 4, "a line a minute"
    named = "nobody" if who == "stranger" or path.endswith("NoSuch") else f"client:{who}"
    assert eventually(lambda: audited(federation, named, stranger), "the attack is in the audit")


@pytest.mark.parametrize("what", ["a head without an end", "settings"])
@pytest.mark.parametrize("who", ["stranger", "member"])
def test_frames_that_are_no_calls_end_their_connection_and_leave_others_served(
    who: str, what: str, federation: Federation, call: Callable[[], object], stranger: str, tmp_path: Path
) -> None:
    first, again = (b"", frame(SETTINGS, 0, 0) * 1000)
    if what == "a head without an end":
        first = frame(HEADERS, 0, 1, call_headers("/fedplcc.v1.EnrolService/Enrol"))
        again = more_of_a_head(1000) * 10
    port, certificate = federation.enrol_port, ""
    if who == "member":
        admit(federation.state, Role.CLIENT, f"mallory-{len(what)}", tmp_path, domain="a")
        port, certificate = federation.port, str(tmp_path / IDENTITY_FILE)
    attack = {"port": port, "source": stranger, "connections": 4, "certificate": certificate}
    with hostile(kind="frames", first=first.hex(), again=again.hex(), **attack):
        eventually(lambda: (call(), ended_of(federation, stranger, "bytes in vain"))[1], "the flood ends", WAIT_S)
        call()


@pytest.mark.parametrize(
    "first", ["", pytest.param(HALF_A_HELLO, marks=pytest.mark.full)], ids=["silence", "half a hello"]
)
@pytest.mark.parametrize("port", ["member", "enrolment", "metrics"])
def test_silent_connections_at_the_limit_and_50_more_leave_others_served(
    port: str, first: str, federation: Federation, stranger: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    covered(f"{MOST + 50} connections at the {port} port")
    number = {"member": federation.port, "enrolment": federation.enrol_port, "metrics": federation.metrics_port}[port]
    with hostile(kind="silence", port=number, source=stranger, connections=MOST + 50, first=first):
        for turn in range(3):
            if port == "member":
                eventually(lambda: is_answered(federation), "a newcomer is answered", WAIT_S)
            elif port == "enrolment":
                eventually(partial(joins, federation, tmp_path / str(turn)), "a newcomer joins", WAIT_S)
            else:
                url = f"http://127.0.0.1:{federation.metrics_port}/metrics"
                with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
                    assert answer.status == 200


@pytest.mark.full
def test_an_aggregator_that_ends_no_connection_is_found(stranger: str, tmp_path: Path) -> None:
    with (
        limited(tmp_path, "tests.chaos.siege.mutant", **{VARIABLE: "no_connection_ends"}) as planted,
        hostile(kind="silence", port=planted.enrol_port, source=stranger, connections=MOST + 50, first=""),
        pytest.raises(AssertionError, match="a newcomer joins"),
    ):
        eventually(partial(joins, planted, tmp_path / "late"), "a newcomer joins", WAIT_S)


def is_answered(federation: Federation) -> bool:
    with channel_of(federation.address, federation.operator_tls) as channel:
        runs: Any = run_service_pb2_grpc.RunServiceStub(channel)
        try:
            runs.ListRuns(run_service_pb2.ListRunsRequest(), timeout=5)
        except grpc.RpcError:
            return False
    return True


def joins(federation: Federation, folder: Path) -> bool:
    try:
        admit(federation.state, Role.CLIENT, f"late-{folder.name}", folder, domain="a")
    except Exception:
        return False
    return True


def test_this_process_may_open_what_the_attacks_open() -> None:
    assert most_files() > MOST + 50 + 100
