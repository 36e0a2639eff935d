"""A federation under siege: every attack at once, and what honest parts see of it.

The federation has the default settings, mutual TLS, processes of its own and as many open files as most systems give a
process. Attackers are processes too; see foe.py for what they take of this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedplcc.remote.admin_calls import admin_calls
from fedplcc.remote.joining import join_federation
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.identity.credentials import IDENTITY_FILE
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address
from tests.chaos.hostile import HONEST, SIZE, expected_lines, honest_document
from tests.chaos.siege.attacks import Who
from tests.chaos.siege.by_member import MALLORY, begin_own_run
from tests.chaos.siege.foe import HOST, Known
from tests.chaos.siege.honest import ASK_S, BEAT_S, COME_S, Caller, Felt, heartbeats, newcomers, requests
from tests.chaos.siege.mutant import VARIABLE
from tests.support import ROOT
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import a_document
from tests.support.federation.processes import Federation, Process, eventually, free_port

FILES = 1024
"""Open files of aggregator and gateway: what most systems give a process."""
ROUNDS = 5
SERVICES = ("aggregator", "gateway")
P99_S = 1.0
LOG_BYTES, LOG_S, FIRST_LINES = 1 << 20, 120.0, 0.5
"""Most bytes of logs in so many seconds, and the part that a shorter siege may write, too: each refusal's first line."""
TIMES_IDLE = 3.0
"""Most resident memory, in that of a process at rest: 2.2 and 2.6 times on a quiet machine, where twice is wanted."""
HOUR_S = 3600.0
PATIENCE_S = 120.0
"""Time for an honest run, after the siege, too."""


@dataclass
class Outcome:
    """What a siege came to."""

    seconds: float
    felt: list[Felt]
    lateness: Felt
    """How late this process is by itself, which the times above include: it tells how busy the machine is."""
    idle_mib: Mapping[str, float]
    peak_mib: Mapping[str, float]
    log_bytes: Mapping[str, int]
    lost_leases: list[str]
    num_runs: int
    """Honest runs that ended during the siege, and the one that it ended in."""
    is_same: bool
    undisturbed_s: float
    """Seconds of an honest run before it."""
    state_bytes: int
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Calls by attack and outcome."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def num_calls(self) -> int:
        """Calls of the attackers."""
        return sum(sum(outcomes.values()) for outcomes in self.counts.values())

    def violations(self, *, is_timed: bool) -> list[str]:
        """Sentences for what does not hold; times count only on a machine that does nothing else."""
        found = []
        for felt in self.felt:
            if is_timed and felt.quantile(0.99) >= P99_S:
                found.append(f"{felt.name}: p99 {felt.quantile(0.99):.2f} s")
            found += [f"{felt.name}: {count} x {reason}" for reason, count in felt.failures.items()]
        found += [f"{who} lost its lease" for who in self.lost_leases]
        for name in SERVICES:
            if self.peak_mib[name] >= TIMES_IDLE * self.idle_mib[name]:
                found.append(f"{name}: {self.peak_mib[name]:.0f} MiB, idle {self.idle_mib[name]:.0f}")
        if sum(self.log_bytes.values()) >= LOG_BYTES * max(FIRST_LINES, self.seconds / LOG_S):
            found.append(f"the logs grew by {sum(self.log_bytes.values()):,} bytes")
        if not self.is_same:
            found.append("an honest run ended in other bytes")
        return found

    def report(self) -> str:
        """What was done and felt, in lines."""
        lines = [f"{self.seconds:.0f} s of siege: {self.num_calls:,} calls of {len(self.counts)} attacks"]
        for name, outcomes in sorted(self.counts.items()):
            said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items(), key=lambda it: -it[1]))
            lines.append(f"  {name}: {sum(outcomes.values())} ({said})")
        lines += map(str, (*self.felt, self.lateness))
        for name in SERVICES:
            lines.append(
                f"{name}: {self.idle_mib[name]:.0f} MiB idle, at most {self.peak_mib[name]:.0f}; "
                f"log {self.log_bytes[name]:,} bytes; {self.cpu_s[name]:.0f} s of a processor"
            )
        lines.append(
            f"honest runs of {ROUNDS} rounds: {self.num_runs}, {self.undisturbed_s:.1f} s for one before; "
            f"state directory {self.state_bytes / 2**20:.0f} MiB more"
        )
        return "\n".join(lines)


def besiege(folder: Path, seconds: float, *, mutant: str = "", only: str = "") -> Outcome:
    """Have every attack carried out for a while.

    Args:
        folder: An empty folder.
        seconds: Time of the attacks.
        mutant: Bound that is taken from the aggregator; see mutant.py.
        only: Pattern of the names of the attacks; all if empty.
    """
    lines = expected_lines(folder, ROUNDS)
    with ExitStack() as around:
        federation = around.enter_context(Federation(folder))
        _start(federation, folder, mutant)
        control = RunControl(federation.address, tls=federation.operator_tls)
        around.callback(control.close)
        known = replace(_prepare(federation, control, folder), only=only)
        _start_honest(federation, folder)
        begin = time.monotonic()
        run_id = _created(control)
        assert _finished(control, run_id) == lines
        undisturbed_s = time.monotonic() - begin
        paths = (
            "/v1/runs?page_size=10",
            f"/v1/runs/{run_id}",
            "/v1/clients?page_size=10",
            f"/v1/runs/{run_id}/metrics.jsonl",
        )
        felt = [
            around.enter_context(caller)
            for caller in (
                Caller("heartbeats", heartbeats(federation.address, federation.client_tls("herald")), BEAT_S),
                Caller(
                    "requests", requests(federation.gateway_port, _new_key(federation, "read", "results"), paths), ASK_S
                ),
                Caller("newcomers", newcomers(federation.address, federation.client_tls("newcomer")), COME_S),
            )
        ]
        lateness = around.enter_context(Caller("a wait of 10 ms in this process", lambda: time.sleep(0.01), BEAT_S))
        before = _Before(federation, control)
        with _attackers(folder, known, seconds) as counts:
            is_same, num_runs = _honest_runs(control, lines, seconds)
        return Outcome(
            seconds=seconds,
            felt=felt,
            lateness=lateness,
            idle_mib=before.idle_mib,
            peak_mib={name: _memory_mib(federation, name, "VmHWM") for name in SERVICES},
            log_bytes={
                name: federation.processes[name].log_file.stat().st_size - before.log_bytes[name] for name in SERVICES
            },
            lost_leases=[who for who in _lost(control)[before.num_lost :] if who != MALLORY],
            num_runs=num_runs,
            is_same=is_same,
            undisturbed_s=undisturbed_s,
            state_bytes=_size(federation.state) - before.state_bytes,
            counts=counts,
            cpu_s={name: _cpu_s(federation, name) - before.cpu_s[name] for name in SERVICES},
        )


class _Before:
    """How things stood before the siege."""

    def __init__(self, federation: Federation, control: RunControl) -> None:
        self.idle_mib = {name: _memory_mib(federation, name, "VmRSS") for name in SERVICES}
        self.log_bytes = {name: federation.processes[name].log_file.stat().st_size for name in SERVICES}
        self.cpu_s = {name: _cpu_s(federation, name) for name in SERVICES}
        self.state_bytes = _size(federation.state)
        self.num_lost = len(_lost(control))


def _start(federation: Federation, folder: Path, mutant: str) -> None:
    limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
    prefix = (sys.executable, "-c", f"{limit}; os.execv(sys.argv[1], sys.argv[1:])")
    ports = ("--port", "0", "--metrics-port", "0", "--enrol-port", "0")
    module = "tests.chaos.siege.mutant" if mutant else "aggregator"
    arguments = (module, "--state-dir", str(federation.state), *ports)
    federation.processes["aggregator"] = Process("aggregator", folder, arguments, prefix)
    federation.processes["aggregator"].environment = {VARIABLE: mutant}
    federation.start_aggregator()
    federation.gateway_port = free_port()
    identity = federation.identity_file(Role.GATEWAY, "console", folder / "gateway")
    where = ("--aggregator", federation.address, "--port", str(federation.gateway_port))
    serving = ("gateway", *where, "--state-dir", str(identity.parent))
    federation.processes["gateway"] = Process("gateway", folder, serving, prefix)
    federation.start_gateway()


def _start_honest(federation: Federation, folder: Path) -> None:
    for name in HONEST:
        identity = federation.identity_file(Role.CLIENT, name, folder / name)
        arguments = ("tests.support.federation.numpy_trainer", federation.address, name, str(SIZE), str(identity))
        federation.processes[name] = Process(name, folder, arguments)
        federation.processes[name].start()


def _prepare(federation: Federation, control: RunControl, folder: Path) -> Known:
    """Admit the attackers, revoke one, and make what they know."""
    federation.identity_file(Role.CLIENT, MALLORY, folder / Who.MEMBER)
    with admin_calls(federation.state) as calls:
        address = join_address(HOST, federation.enrol_port)
        code, _end = calls.invite("client", Who.REVOKED, address=address, domain="", valid_s=HOUR_S)
        join_federation(code, folder / Who.REVOKED, aggregator=federation.address)
        calls.revoke("client", Who.REVOKED)
    document = a_document("fedavg", (MALLORY,), run={"name": "own", "rounds": 1000})
    own_run = control.create(document).run_id
    begin_own_run(federation.address, federation.client_tls(MALLORY))
    return Known(
        address=federation.address,
        enrol_address=address,
        gateway_port=federation.gateway_port,
        roots_pem=federation.credentials(Role.CLIENT, MALLORY).roots_pem.decode(),
        keys={scope: _new_key(federation, scope) for scope in ("read", "run")},
        own_run=own_run,
        honest=HONEST,
        invitation=(code.invitation_id, code.secret.hex()),
    )


def _new_key(federation: Federation, *scopes: str) -> str:
    with admin_calls(federation.state) as calls:
        return calls.create_key("a test", list(scopes), HOUR_S)[1]


@contextmanager
def _attackers(folder: Path, known: Known, seconds: float) -> Iterator[dict[str, dict[str, int]]]:
    """Every attacker at work for a while from the block's beginning on; what each did is there afterwards."""
    counts: dict[str, dict[str, int]] = {}
    with ExitStack() as around:
        processes = [around.enter_context(_attacker(who, folder / who / IDENTITY_FILE, known)) for who in Who]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
        end = threading.Timer(seconds, lambda: [process.stdin.close() for process in processes if process.stdin])
        end.start()
        around.callback(end.cancel)
        yield counts
        end.join()
        for process in processes:
            assert process.stdout is not None
            counts.update(json.loads(process.stdout.readline()))


@contextmanager
def _attacker(who: Who, identity: Path, known: Known) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.chaos.siege.attacker", who, *([str(identity)] if identity.exists() else [])]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(known.to_json() + "\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _honest_runs(control: RunControl, lines: list[str], seconds: float) -> tuple[bool, int]:
    """Carry out one honest run after another while time lasts; whether all ended in these lines, and how many."""
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        found.append(_finished(control, _created(control)))
    return all(each == lines for each in found), len(found)


def _created(control: RunControl) -> str:
    return control.create(honest_document(ROUNDS)).run_id


def _finished(control: RunControl, run_id: str) -> list[str]:
    def has_completed() -> bool:
        status = control.get(run_id).status
        assert status in (types_pb2.RUN_STATUS_PENDING, types_pb2.RUN_STATUS_RUNNING, types_pb2.RUN_STATUS_COMPLETED)
        return status == types_pb2.RUN_STATUS_COMPLETED

    eventually(has_completed, "the honest run completes", PATIENCE_S)
    return control.metrics_lines(run_id)


def _lost(control: RunControl) -> list[str]:
    """Clients whose leases ended, in order."""
    request = run_pb2.WatchRunRequest(types=["client_lost"], page_size=1000)
    answers: Any = control.stub.WatchRun(request, timeout=PATIENCE_S)
    return [answer.event.client_id for answer in answers]


def _memory_mib(federation: Federation, name: str, what: str) -> float:
    lines = Path(f"/proc/{federation.processes[name].pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) / 1024


def _cpu_s(federation: Federation, name: str) -> float:
    numbers = Path(f"/proc/{federation.processes[name].pid}/stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / 100


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
