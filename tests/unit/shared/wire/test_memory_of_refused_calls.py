"""Memory of a server with mutual TLS to which a member, revoked or not, sends the dearest requests, and what others feel."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from fedplcc.shared.identity.certificates import serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.serving.server import UNREAD_BYTES
from tests.support import ROOT
from tests.support.federation.certificates import Held, TestAuthority
from tests.support.searches import amount

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much memory a process has")

NUM_CALLS, NUM_TIMES = 24, amount(3, 1)
METHODS = amount(["Join"], list(round_service_pb2.DESCRIPTOR.services_by_name["RoundService"].methods_by_name))
MOST_MIB = UNREAD_BYTES / 2**20 * NUM_CALLS + 24.0
"""gRPC takes the raw bytes of a request that nobody reads as far as its windows go. Decoded, these have 2,800 MiB."""
MOST_WAIT_S = amount(5.0, 1.0)
"""Most that 99 of 100 heartbeats of another wait: milliseconds, and the rest is for a machine with other work."""
DEADLINE_S = 60.0
CALLER = """
import json, sys
import grpc
from fedplcc.shared.wire.channels import open_channel
from tests.support.federation.certificates import Held

given = json.loads(sys.stdin.readline())
held = Held(given["key"].encode(), given["chain"].encode(), given["roots"].encode())
request = bytes.fromhex(given["unit"]) * given["num_units"]
channels = [open_channel(f"127.0.0.1:{given['port']}", tls=held.tls) for _ in range(given["num_calls"])]
for channel in channels:
    grpc.channel_ready_future(channel).result(60)
print("begun", flush=True)
codes = set()
for method in given["methods"] * given["num_times"]:
    path = f"/fedplcc.v1.RoundService/{method}"
    calls = [channel.unary_unary(path).future(request, timeout=60) for channel in channels]
    codes |= {call.code().name for call in calls}
print(*sorted(codes), flush=True)
"""

NUM_COMMITS = amount((1, 40, 200), (1, 50, 300))
MOST_COMMITS_MIB, MOST_A_COMMIT_MIB = 80.0, 0.1
"""Memory that one commit of 4.6 MB may cost at first, with what gRPC and the C library keep, and each of those after it.
The commits' raw bytes alone are 4.4 MiB each."""
MEMBER = """
import json, sys
import grpc
from fedplcc.shared.wire.channels import open_channel
from tests.support.federation.certificates import Held
from tests.support.federation.dearest_requests import dearest_commits

given = json.loads(sys.stdin.readline())
held = Held(given["key"].encode(), given["chain"].encode(), given["roots"].encode())
with open_channel(f"127.0.0.1:{given['port']}", tls=held.tls) as channel:
    commit = channel.unary_unary("/fedplcc.v1.RoundService/CommitUpdate")
    print("begun", flush=True)
    for line in sys.stdin:
        codes, commits = set(), dearest_commits()
        for first in range(0, int(line), len(commits)):
            calls = [commit.future(data, timeout=60) for data in commits[: int(line) - first]]
            codes |= {call.code().name for call in calls}
        print(*sorted(codes), flush=True)
"""


def as_json(held: Held, **more: object) -> str:
    pem = {"key": held.key_pem, "chain": held.chain_pem, "roots": held.roots_pem}
    return json.dumps({name: text.decode() for name, text in pem.items()} | more) + "\n"


@contextmanager
def process(arguments: list[str], first_line: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdin is not None
        started.stdin.write(first_line)
        started.stdin.flush()
        yield started
    finally:
        started.kill()
        started.communicate()


def line_of(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def memory_mib(pid: int, what: str) -> float:
    found = re.search(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


async def heartbeats_s(port: int, held: Held, attacker: subprocess.Popen[str]) -> tuple[str, list[float]]:
    """Return what the attacker says next, and how long another's heartbeats took until then, the longest last."""
    async with open_aio_channel(f"127.0.0.1:{port}", tls=held.tls) as channel:
        stub = round_service_pb2_grpc.RoundServiceStub(channel)
        await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=DEADLINE_S)
        said, seconds = asyncio.create_task(asyncio.to_thread(line_of, attacker)), []
        while not said.done():
            begin = time.monotonic()
            await stub.Heartbeat(round_service_pb2.HeartbeatRequest(), timeout=DEADLINE_S)
            seconds.append(time.monotonic() - begin)
            await asyncio.sleep(0.02)
        return await said, sorted(seconds)


def check_felt(seconds: Sequence[float]) -> str:
    """Check what another member felt; returns it in words."""
    p99_s = seconds[int(0.99 * len(seconds))]
    assert p99_s < MOST_WAIT_S, f"p99 {p99_s:.2f} s"
    return f"another's heartbeat p99 {p99_s:.3f} s, at most {seconds[-1]:.3f} s"


def grown_by_calls(*, is_revoked: bool, **calls: object) -> tuple[float, str, list[float]]:
    """Memory of a server after a member's calls, their codes, and seconds of another's heartbeats, the longest last."""
    authority = TestAuthority()
    ann, bob = authority.issue(Role.CLIENT, "ann"), authority.issue(Role.CLIENT, "bob")
    revoked = [serial_of(x509.load_pem_x509_certificate(ann.chain_pem))] if is_revoked else []
    serving = ["-m", "tests.support.federation.member_server"]
    with process(serving, as_json(authority.server, roots=authority.roots_pem.decode(), revoked=revoked)) as server:
        port = int(line_of(server))
        with process(["-c", CALLER], as_json(ann, port=port, **calls)) as attacker:
            assert line_of(attacker) == "begun"
            before_mib = memory_mib(server.pid, "VmRSS")
            codes, seconds = asyncio.run(heartbeats_s(port, bob, attacker))
            return memory_mib(server.pid, "VmHWM") - before_mib, codes, seconds


@pytest.mark.parametrize(
    ("method", "request_", "codes"),
    [
        (
            "Heartbeat",
            round_service_pb2.HeartbeatRequest(run_id="k://" + ":" * 40_000).SerializeToString(),
            {"OK"},
        ),
        ("No://" + ":" * 28_000, b"", {"UNIMPLEMENTED"}),
    ],
    ids=["a run's id", "a method"],
)
def test_a_text_that_a_log_could_take_long_for_costs_another_no_time(
    method: str, request_: bytes, codes: set[str], covered: Callable[[str], None]
) -> None:
    calls = {"num_calls": 1, "num_times": 20, "methods": [method], "unit": request_.hex(), "num_units": 1}
    _grown_mib, found, seconds = grown_by_calls(is_revoked=False, **calls)
    covered(f"{len(method) + len(request_)} characters: {check_felt(seconds)}; {found}")
    assert set(found.split()) == codes


def test_a_revoked_members_largest_requests_cost_neither_memory_nor_others_time(covered: Callable[[str], None]) -> None:
    counts = {"num_calls": NUM_CALLS, "num_times": NUM_TIMES, "methods": METHODS}
    # Two million empty entries in 4 MiB.
    grown_mib, codes, seconds = grown_by_calls(is_revoked=True, unit="2a00", num_units=2 << 20, **counts)
    calls = f"{NUM_CALLS * NUM_TIMES} calls of each of {len(METHODS)} RPCs"
    covered(f"{calls}: {grown_mib:.0f} MiB, {check_felt(seconds)}; {codes}")
    assert set(codes.split()) <= {"UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE", "INTERNAL"}, codes
    assert grown_mib < MOST_MIB, f"{grown_mib:.0f} MiB"


def grown_by_commits(counts: Sequence[int], *, keeps: bool = False) -> tuple[list[float], set[str], list[float]]:
    """Memory after each number of commits, their codes, and seconds of another's heartbeats, the longest last."""
    authority = TestAuthority()
    ann, bob = authority.issue(Role.CLIENT, "ann"), authority.issue(Role.CLIENT, "bob")
    given = as_json(authority.server, roots=authority.roots_pem.decode(), revoked=[], keeps=keeps)
    grown_mib, codes, felt_s = list[float](), set[str](), list[float]()
    with process(["-m", "tests.support.federation.member_server"], given) as server:
        port = int(line_of(server))
        with process(["-c", MEMBER], as_json(ann, port=port)) as member:
            assert line_of(member) == "begun"
            before_mib = memory_mib(server.pid, "VmRSS")
            for count in counts:
                assert member.stdin is not None
                member.stdin.write(f"{count}\n")
                member.stdin.flush()
                said, seconds = asyncio.run(heartbeats_s(port, bob, member))
                codes |= set(said.split())
                felt_s += seconds
                grown_mib.append(memory_mib(server.pid, "VmHWM") - before_mib)
    return grown_mib, codes, sorted(felt_s)


@pytest.mark.slow
def test_large_commits_of_a_member_cost_memory_once(covered: Callable[[str], None]) -> None:
    grown_mib, codes, seconds = grown_by_commits(NUM_COMMITS)
    told = ", ".join(f"{grown:.0f} MiB for {count}" for count, grown in zip(NUM_COMMITS, grown_mib, strict=True))
    covered(f"{told}; {check_felt(seconds)}")
    assert codes == {"OK", "INVALID_ARGUMENT"}
    assert grown_mib[0] < MOST_COMMITS_MIB
    assert grown_mib[-1] < MOST_COMMITS_MIB + MOST_A_COMMIT_MIB * NUM_COMMITS[-1], grown_mib


@pytest.mark.full
@pytest.mark.slow
def test_a_server_that_keeps_what_it_is_sent_is_found() -> None:
    grown_mib, _codes, _seconds = grown_by_commits((1, 80), keeps=True)
    assert grown_mib[-1] > MOST_COMMITS_MIB + MOST_A_COMMIT_MIB * 80
