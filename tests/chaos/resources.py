"""One member exhausts a resource while an honest run goes on: connections, file descriptors, memory, disk, aggregations.

    python -m tests.chaos.resources          # every resource at full size; exits 1 on a violation

The hostile member has a run of its own on the same aggregator. The limits are real: RLIMIT_NOFILE and RLIMIT_DATA of the
aggregator's process, a small tmpfs as its disk where mounting is allowed. The honest run ends in its undisturbed bytes, and
an operator pauses, resumes and stops the hostile run and quarantines its member while the resource is still taken.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.process.resources import SERVICE_FILES
from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import MODEL
from fedplcc.shared.wire.addresses import split_address
from tests.chaos.hostile import (
    MALLORY,
    Attack,
    CostlyClient,
    Outcome,
    expected_lines,
    honest_run,
    honest_trainers,
    steer,
)
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.processes import Federation, Process

ROUNDS, CONNECTIONS, UPLOADS = 10, 5000, 64
FILES = SERVICE_FILES
"""Open files that the aggregator may have: as few as it starts with."""
MEMORY_BYTES = 256 << 20
"""Memory that the aggregator may still ask for; stacks of threads count, used or not."""
DISK_BYTES = 48 << 20
ROWS, DIM = 4096, 512
"""Prototypes of a costly aggregation."""
UPLOAD_BYTES = 4 << 20


def open_connections(attack: Attack, count: int) -> None:
    """Connections that say nothing."""
    for _ in range(count):
        with suppress(OSError):  # the aggregator may close one before it is open here
            idle = socket.create_connection(split_address(attack.address), timeout=20)
            attack.enter(idle)


def fill_with_uploads(attack: Attack, count: int) -> None:
    """Uploads of a model that is much smaller: as many bytes as the aggregator takes, and then again."""
    task = attack.begin_run("fedavg")
    for index in range(count):
        data = index.to_bytes(4, "little") + bytes(UPLOAD_BYTES)
        with suppress(FedplccError):  # refusals are what it should answer
            attack.grpc.upload(task, blob_ref(MODEL, data), data, chunk_bytes=1 << 19)


def take_connections(attack: Attack, size: float) -> None:
    """More connections than the aggregator may have files open."""
    attack.begin_run("fedavg")
    open_connections(attack, max(2 * FILES, round(size * CONNECTIONS)))


def take_files(attack: Attack, size: float) -> None:
    """Uploads that stand still beside connections that say nothing: each keeps a file open."""
    attack.stalls_uploads(attack.begin_run("fedavg"))
    open_connections(attack, FILES)


def take_memory(attack: Attack, size: float) -> None:
    """Messages as large as they may be, in many calls at a time, of which none is good."""
    task = attack.begin_run("fedavg")
    attack.stalls_uploads(task)
    data = bytes(UPLOAD_BYTES)
    for _ in range(max(4, round(size * UPLOADS))):
        attack.again_and_again(lambda: attack.grpc.upload(task, blob_ref(MODEL, data), data, chunk_bytes=1 << 20))


def take_disk(attack: Attack, size: float) -> None:
    """Uploads for more bytes than the disk has."""
    fill_with_uploads(attack, max(2 * DISK_BYTES // UPLOAD_BYTES, round(size * UPLOADS)))


def take_aggregations(attack: Attack, size: float) -> None:
    """Prototypes that are almost equal: each pair must be compared exactly."""
    attack.grpc.perform(attack.begin_run())


ATTACKS: Mapping[str, Callable[[Attack, float], None]] = {
    "connections": take_connections,
    "files": take_files,
    "memory": take_memory,
    "disk": take_disk,
    "aggregations": take_aggregations,
}


def run(folder: Path, attack_name: str, *, rounds: int = ROUNDS, size: float = 1.0) -> Outcome:
    """Carry out the honest run by itself, and while one member takes all of a resource."""
    lines = expected_lines(folder, rounds)
    with ExitStack() as around:
        if attack_name == "disk":
            around.enter_context(small_disk(folder / "aggregator"))
        federation = around.enter_context(Federation(folder))
        aggregator = _limited(federation, folder)
        control = RunControl(federation.address, tls=federation.operator_tls)
        around.callback(control.close)
        around.enter_context(honest_trainers(federation))
        undisturbed_s, _ = honest_run(control, rounds)
        if attack_name == "memory":
            _limit_memory(aggregator.pid)
        mallory = federation.client_tls(MALLORY)
        with Attack(federation.address, control, _member(attack_name, size), mallory) as attack:
            ATTACKS[attack_name](attack, size)
            seconds, found = honest_run(control, rounds)
            steered_s = steer(control, attack.run_id)
            assert aggregator.is_running, aggregator.log()[-2000:]
        with urllib.request.urlopen(f"http://127.0.0.1:{federation.metrics_port}/metrics", timeout=60) as answer:
            assert answer.status == 200, "the metrics are served again"
    return Outcome(attack_name, undisturbed_s, seconds, found == lines, steered_s)


def _member(attack_name: str, size: float) -> NumpyClient:
    if attack_name != "aggregations":
        return NumpyClient(MALLORY, size=20)
    client = CostlyClient(MALLORY)
    client.rows, client.dim = max(1024, round(size * ROWS)), max(64, round(size * DIM))
    client.counts = (client.rows, 0, 0)
    return client


def _limited(federation: Federation, folder: Path) -> Process:
    """Start an aggregator that may have few files open."""
    limit = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
    federation.processes["aggregator"] = Process(
        "aggregator",
        folder,
        (
            *(
                "aggregator",
                "--state-dir",
                str(folder / "aggregator"),
                "--port",
                "0",
                "--metrics-port",
                "0",
                "--enrol-port",
                "0",
            ),
            *("--heartbeat-interval-s", "0.5", "--lease-heartbeats", "20"),
        ),
        prefix=(sys.executable, "-c", f"{limit}; os.execv(sys.argv[1], sys.argv[1:])"),
    )
    return federation.start_aggregator()


def _limit_memory(pid: int) -> None:
    used = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmData:"))
    limit = int(used.split()[1]) * 1024 + MEMORY_BYTES
    resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A small file system of its own, where mounting is allowed; see `may_mount`."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    subprocess.run(mount, capture_output=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def may_mount(folder: Path) -> bool:
    """Whether this process may mount a disk."""
    if os.geteuid() != 0:
        return False
    try:
        with small_disk(folder):
            return True
    except subprocess.CalledProcessError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Exhaust every resource, print what came of it, and return 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.resources", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("resources", nargs="*", choices=[*ATTACKS, []], default=[])
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    violations: list[str] = []
    for name in options.resources or ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            if name == "disk" and not may_mount(Path(folder) / "probe"):
                print("disk: left out, mounting a small disk needs root and its capabilities")
                continue
            outcome = run(Path(folder), name)
        steered = ", ".join(f"{action} {seconds:.2f} s" for action, seconds in outcome.steered_s.items())
        print(f"{name}: {outcome.seconds:.1f} s, by itself {outcome.undisturbed_s:.1f} s; {steered}", flush=True)
        violations += outcome.violations(is_timed=True)
    for violation in violations:
        print(f"violation: {violation}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
