"""`fedplcc doctor`: every problem that a machine can have is found, named, and followed by what to do."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.command.all_commands import app
from fedplcc.doctor import CHECKS, examine, machine, network, python, state_folder
from fedplcc.doctor.findings import Check, Finding, Probes, Status, Subject, in_bytes
from fedplcc.extras import EXTRAS
from fedplcc.shared.version import VERSION
from tests.support.hosts.memory_folder import memory_folder

runner = CliRunner()
GIB = 1 << 30


def found(check: Check, status: Status, **about: Any) -> str:
    """The one finding of this kind; everything worse than right says what to do after a colon or a semicolon."""
    subject = Subject(**{"state": Path("nowhere"), **about})
    findings = [finding for finding in check(subject) if finding.status is status]
    assert len(findings) == 1, list(check(subject))
    if status is not Status.OK:
        assert ":" in findings[0].sentence or ";" in findings[0].sentence
    return findings[0].sentence


def probes(**changes: Any) -> Probes:
    return Probes(**{"environment": {}, **changes})


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_arguments: Any, **_keywords: Any) -> Any:
        raise error

    return fail


def without(*modules: str) -> Callable[[str], bool]:
    return lambda module: module not in modules


# Python and packages


def test_another_python_is_a_problem() -> None:
    def check(version: tuple[int, int]) -> Finding:
        return next(python.python_version(Subject(state=Path()), version))

    assert check((3, 11)).status is check((3, 13)).status is Status.OK
    for version in ((3, 10), (3, 14)):
        assert check(version).status is Status.PROBLEM
        assert "3.11 to 3.13" in check(version).sentence


def test_packages_that_do_not_fit_are_named() -> None:
    old = probes(version_of=lambda package: "1.0" if package == "numpy" else None)
    assert "numpy>=1.26 is needed and 1.0 is installed; pip install" in found(
        python.packages, Status.PROBLEM, probes=old
    )
    broken = probes(load=failing(RuntimeError("gencode 6.33 runtime 5.29\nmore")))
    text = found(python.packages, Status.PROBLEM, probes=broken)
    assert "gencode 6.33 runtime 5.29" in text
    assert "\n" not in text


def test_an_extra_that_is_there_in_part_is_a_problem() -> None:
    text = found(python.packages, Status.PROBLEM, probes=probes(is_installed=without("alembic")))
    assert text == "alembic of the aggregator is missing; pip install 'fedplcc[aggregator]'"


def test_an_installation_without_services_is_told_apart_from_one_with_some() -> None:
    everything = {module for modules in EXTRAS.values() for module in modules}
    assert "only steer" in found(python.packages, Status.WARNING, probes=probes(is_installed=without(*everything)))
    no_torch = probes(is_installed=without(*EXTRAS["trainer"]))
    sentences = [finding.sentence for finding in python.packages(Subject(state=Path(), probes=no_torch))]
    assert "this installation can run: aggregator, gateway" in sentences


# Torch and devices


def a_torch(
    *, cuda: str | None = None, devices: int = 0, free: float = 0.9, error: Exception | None = None
) -> SimpleNamespace:
    properties = SimpleNamespace(name="H100", major=9, minor=0)
    ones = SimpleNamespace(sum=lambda: SimpleNamespace(item=lambda: 8))
    return SimpleNamespace(
        __version__="2.15",
        version=SimpleNamespace(cuda=cuda),
        ones=failing(error) if error else lambda *_, **__: ones,
        backends=SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX2")),
        cuda=SimpleNamespace(
            is_available=lambda: devices > 0,
            device_count=lambda: devices,
            get_device_properties=lambda index: properties,
            mem_get_info=lambda index: (free * 80 * GIB, 80 * GIB),
        ),
    )


def with_torch(torch: SimpleNamespace, *, device: bool = False) -> Probes:
    return probes(is_installed=lambda module: True, load=lambda module: torch, exists=lambda path: device)


@pytest.mark.parametrize(
    ("torch", "device", "status", "said"),
    [
        (a_torch(cuda="12.8"), False, Status.WARNING, "made for CUDA 12.8 but sees no device"),
        (a_torch(), True, Status.WARNING, "made without CUDA"),
        (a_torch(cuda="12.8", devices=1, free=0.05), False, Status.WARNING, "another process holds it"),
        (
            a_torch(cuda="12.8", devices=1, error=RuntimeError("no kernel image")),
            False,
            Status.PROBLEM,
            "no kernel image",
        ),
    ],
)
def test_what_is_wrong_with_a_device_is_said(torch: SimpleNamespace, device: bool, status: Status, said: str) -> None:
    assert said in found(python.torch_and_device, status, probes=with_torch(torch, device=device))


def test_variables_that_change_last_bits_are_told() -> None:
    odd = probes(environment={"NVIDIA_TF32_OVERRIDE": "1", "CUBLAS_WORKSPACE_CONFIG": ":0:0"})
    assert "NVIDIA_TF32_OVERRIDE=1" in found(python.determinism, Status.WARNING, probes=odd)
    assert "CUBLAS_WORKSPACE_CONFIG=:0:0" in found(python.determinism, Status.PROBLEM, probes=odd)
    fine = probes(environment={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    assert "no variable" in found(python.determinism, Status.OK, probes=fine)


# The machine

CPU = "model name\t: Test\nflags\t\t: sse4_2{more}\n"


def files(**texts: str) -> Callable[[str], str]:
    """Files of the system by the last part of their path."""
    return lambda path: texts.get(Path(path).name.replace(".", "_"), "")


def test_a_slow_or_narrow_processor_is_told() -> None:
    old = probes(read=files(cpuinfo=CPU.format(more="")))
    if os.uname().machine == "x86_64":
        assert "without AVX2" in found(machine.processor, Status.WARNING, probes=old)
    new = CPU.format(more=" avx2 avx512f")
    assert "avx2, avx512f" in found(machine.processor, Status.OK, probes=probes(read=files(cpuinfo=new)))
    half = probes(read=files(cpuinfo=new, cpu_max="50000 100000\n"))
    assert "0.5 of a processor" in found(machine.processor, Status.WARNING, probes=half)
    many = probes(read=files(cpuinfo=new), environment={"OMP_NUM_THREADS": "4096"})
    assert "OMP_NUM_THREADS=4096" in found(machine.processor, Status.WARNING, probes=many)


def usage(free: float) -> Callable[[Path], Any]:
    return lambda path: SimpleNamespace(free=free, total=100 * GIB, used=0)


MEMORY = "MemTotal: 16777216 kB\nMemAvailable: {kilobytes} kB\n"


def test_little_memory_is_told() -> None:
    def found_with(available: int, limit: str = "max", shared: float = GIB, exists: bool = True) -> list[Finding]:
        texts = files(meminfo=MEMORY.format(kilobytes=available), memory_max=limit)
        changed = probes(read=texts, disk_usage=usage(shared), exists=lambda path: exists)
        return list(machine.memory(Subject(state=Path(), probes=changed)))

    assert [finding.status for finding in found_with(8 << 20)] == [Status.OK]
    assert "500.0 MiB available of 16.0 GiB" in found_with(500 << 10)[0].sentence
    assert found_with(8 << 20, limit=str(300 << 20))[0].sentence.startswith("300.0 MiB"), "the container's limit"
    assert "--shm-size" in found_with(8 << 20, shared=1 << 20)[1].sentence
    assert "mount a tmpfs" in found_with(8 << 20, exists=False)[1].sentence


def test_few_open_files_are_told() -> None:
    def check(hard: int) -> Finding:
        return next(machine.open_files(Subject(state=Path()), lambda kind: (20, hard)))

    assert check(255).status is Status.PROBLEM
    assert check(256).status is Status.WARNING
    assert "ulimit -n" in check(256).sentence
    assert check(1024).status is check(resource.RLIM_INFINITY).status is Status.OK


def test_a_wrong_clock_is_told() -> None:
    def check(status: int | None, now: float = 2e9) -> Finding:
        return next(machine.clock(Subject(state=Path(), probes=probes(wall_clock=lambda: now)), lambda: status))

    assert check(0, now=86_400.0).status is Status.PROBLEM
    assert check(machine.STA_UNSYNC).status is Status.WARNING
    assert check(0).status is check(None).status is Status.OK
    assert machine._clock_status() is None or machine._clock_status() != -1


def test_ports_that_are_taken_or_not_ours_are_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = found(machine.ports, Status.WARNING, ports={port: "--port"})
        assert f"127.0.0.1:{port} is taken" in text
        assert "--port" in text
    assert f"127.0.0.1:{port} is free" in found(machine.ports, Status.OK, ports={port: "--port"})
    # An address that is for documentation only, so that no machine has it.
    assert "no address of this machine" in found(
        machine.ports, Status.PROBLEM, host="192.0.2.1", ports={port: "", 1: ""}
    )


# The folder of the state


def test_a_folder_that_cannot_be_written_is_a_problem(folder: Path) -> None:
    (folder / "file").touch()
    text = found(
        state_folder.folder, Status.PROBLEM, state=folder / "file" / "state", probes=probes(disk_usage=usage(50 * GIB))
    )
    assert "cannot be written (Not a directory)" in text
    assert "--state-dir" in text


def test_a_folder_is_left_as_it_was(folder: Path) -> None:
    (folder / "mine").write_text("mine")
    findings = list(state_folder.folder(Subject(state=folder, probes=probes(disk_usage=usage(50 * GIB)))))
    assert not [finding for finding in findings if finding.status is Status.PROBLEM]
    assert [path.name for path in folder.iterdir()] == ["mine"]
    list(state_folder.folder(Subject(state=folder / "new" / "state")))
    assert not (folder / "new").exists(), "a folder that is to be made is not made"


@pytest.mark.parametrize(("free", "status"), [(0, Status.PROBLEM), (5 * GIB, Status.WARNING), (50 * GIB, Status.OK)])
def test_a_disk_without_room_is_told(folder: Path, free: int, status: Status) -> None:
    changed = probes(disk_usage=usage(free))
    findings = list(state_folder.room(Subject(state=folder, probes=changed), folder))
    assert [finding.status for finding in findings] == [status]
    gone = probes(disk_usage=failing(OSError(errno.EIO, "Input/output error")))
    assert "Input/output error" in found(
        lambda subject: state_folder.room(subject, folder), Status.PROBLEM, probes=gone
    )


MOUNTS = "/dev/sda / ext4 rw 0 0\nserver:/x /data nfs4 rw 0 0\ntmpfs /data/my\\040ram tmpfs rw 0 0\n"


def test_disks_that_lose_databases_are_told() -> None:
    kinds = {"/home": "ext4", "/data/a/b": "nfs4", "/data/my ram/x": "tmpfs", "/database": "ext4"}
    for place, kind in kinds.items():
        assert state_folder.file_system_of(Path(place), MOUNTS) == kind
    changed = probes(read=lambda path: MOUNTS)

    def check(place: str) -> list[Finding]:
        return list(state_folder.file_system(Subject(state=Path(), probes=changed), Path(place)))

    assert check("/home") == []
    assert "on the network (nfs4)" in check("/data/a")[0].sentence
    assert "in memory (tmpfs)" in check("/data/my ram")[0].sentence


def test_a_slow_or_refusing_disk_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))

    def check(_subject: Subject) -> Iterator[Finding]:
        return state_folder.durability(_subject, folder)

    assert "1000.0 ms" in found(check, Status.WARNING, probes=probes(clock=lambda: float(next(ticks))))
    assert "ms until 4 KiB" in found(check, Status.OK)
    monkeypatch.setattr(os, "fsync", failing(OSError(errno.ENOSPC, "No space left on device")))
    assert "No space left" in found(check, Status.PROBLEM)


def test_a_file_system_without_links_or_locks_is_a_problem(folder: Path) -> None:
    assert state_folder.links(folder).status is Status.OK
    (folder / "two").unlink()
    denied = failing(PermissionError(errno.EPERM, "Operation not permitted"))
    assert "no hard links (Operation not permitted)" in state_folder.links(folder, denied).sentence
    assert state_folder.locks(folder).status is Status.OK
    assert "no locks" in state_folder.locks(folder, failing(OSError(errno.ENOLCK, "No locks available"))).sentence
    careless = state_folder.locks(folder, lambda descriptor, kind: None)
    assert careless.status is Status.PROBLEM
    assert "two processes" in careless.sentence


class NoLog(sqlite3.Connection):
    """A database on a disk on which a write-ahead log cannot be shared: SQLite keeps its former mode."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(statement.replace("WAL", "DELETE"), *values)


def test_a_folder_in_which_sqlite_cannot_work_is_a_problem(folder: Path) -> None:
    def check(**keywords: Any) -> Finding:
        with memory_folder() as scratch:
            (finding,) = state_folder.database(Path(scratch), **keywords)
            return finding

    assert "the write-ahead log works" in check().sentence
    assert "no write-ahead log" in check(connect=lambda file: sqlite3.connect(file, factory=NoLog)).sentence
    assert "too old" in check(version=(3, 7, 17)).sentence
    broken = check(connect=failing(sqlite3.OperationalError("locking protocol")))
    assert "locking protocol" in broken.sentence
    assert broken.status is Status.PROBLEM


# An aggregator's state


def test_an_aggregators_state_is_looked_at_and_left_alone(folder: Path) -> None:
    state = folder / "aggregator"
    (state / "blobs" / "ab").mkdir(parents=True)
    (state / "blobs" / "ab" / "abcd").write_bytes(bytes(2048))
    SqlStore.in_folder(state).close()
    before = sorted((path.name, path.read_bytes()) for path in state.iterdir() if path.is_file())
    for name in (folder, state):
        findings = list(state_folder.aggregator_state(Subject(state=name)))
        assert [finding.status for finding in findings] == [Status.OK] * 2
        assert f"1 blobs of 2.0 KiB, runs: none, revision {schema.REVISION}" in findings[0].sentence
        assert "no aggregator runs" in findings[1].sentence
    assert sorted((path.name, path.read_bytes()) for path in state.iterdir() if path.is_file()) == before
    assert list(state_folder.aggregator_state(Subject(state=folder / "blobs"))) == [], "there is none"


def test_an_old_a_newer_and_a_damaged_state_are_told_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "aggregator.sqlite"
    SqlStore.in_folder(folder).close()
    with monkeypatch.context() as later:
        later.setattr(schema, "REVISION", "0002")
        assert "the next start brings it to 0002" in found(state_folder.aggregator_state, Status.WARNING, state=folder)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("UPDATE alembic_version SET version_num = '9999'")
    (folder / "aggregator.sqlite.revision-0001").touch()
    assert "revision 9999, which this version does not know" in found(
        state_folder.aggregator_state, Status.PROBLEM, state=folder
    )
    file.write_bytes(file.read_bytes()[:8000])
    assert "restore a backup" in found(state_folder.aggregator_state, Status.PROBLEM, state=folder)
    file.write_bytes(b"something else")
    assert "restore a backup" in found(state_folder.aggregator_state, Status.PROBLEM, state=folder)


# The way to other hosts


@pytest.mark.parametrize(("check", "about"), [(network.aggregator, "aggregator"), (network.gateway, "gateway")])
def test_the_step_that_fails_on_the_way_is_named(check: Check, about: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    unknown = probes(resolve=failing(socket.gaierror(-2, "Name or service not known")))
    assert "mend DNS" in found(check, Status.PROBLEM, **{about: "host:50051"}, probes=unknown)
    silent = probes(connect=failing(TimeoutError()))
    assert "a firewall" in found(check, Status.PROBLEM, **{about: "127.0.0.1:50051"}, probes=silent)
    assert f"127.0.0.1:{port} refuses" in found(check, Status.PROBLEM, **{about: f"127.0.0.1:{port}"})
    assert list(check(Subject(state=Path()))) == [], "nobody asked for it"


def test_addresses_that_are_none_are_told() -> None:
    assert "write HOST:PORT" in found(network.aggregator, Status.PROBLEM, aggregator="nowhere")
    assert "write http://HOST:PORT" in found(network.gateway, Status.PROBLEM, gateway="http://")
    open_port = probes(connect=lambda address, timeout: socket.socket(), resolve=lambda *_, **__: [])
    text = found(network.aggregator, Status.PROBLEM, aggregator="192.0.2.1:1", probes=open_port)
    assert "use --insecure" in text


# All of it


def test_a_check_that_breaks_is_a_finding_and_stops_no_other() -> None:
    def breaks(_subject: Subject) -> Iterator[Finding]:
        raise ZeroDivisionError("oh")

    findings = list(examine(Subject(state=Path()), [breaks, machine.open_files]))
    assert findings[0].sentence == "the check itself failed (ZeroDivisionError: oh); please report it"
    assert len(findings) == 2


def test_the_command_says_every_finding_and_ends_with_1_for_a_problem(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Torch is not what this is about, and takes seconds.
    cheap = [check for check in CHECKS if check is not python.torch_and_device]
    monkeypatch.setattr("fedplcc.doctor.CHECKS", cheap)
    monkeypatch.setattr(examine, "__defaults__", (cheap,))
    monkeypatch.setattr(shutil, "disk_usage", usage(50 * GIB))
    good = runner.invoke(app, ["doctor", "--state-dir", str(folder)])  # as the aggregator and the findings call it
    assert good.exit_code == 0, good.output
    assert "ok    database" in good.stdout
    assert "0 problems" in good.stdout
    bad = runner.invoke(app, ["doctor", "--state", str(folder), "--host", "192.0.2.1"])
    assert bad.exit_code == 1
    assert "FAIL  ports" in bad.stdout
    assert "1 problem," in bad.stdout
    document = json.loads(
        runner.invoke(app, ["doctor", "--state", str(folder), "--host", "192.0.2.1", "--json"]).stdout
    )
    assert document["problem"] == 1
    assert {"check", "status", "detail"} == set(document["findings"][0])


def test_a_host_without_torch_is_fine() -> None:
    text = found(python.torch_and_device, Status.OK, probes=probes(is_installed=without("torch")))
    assert "fine for an aggregator" in text


def test_a_torch_that_cannot_be_loaded_is_a_problem() -> None:
    broken = probes(is_installed=lambda module: True, load=failing(OSError("libcudart.so.12: cannot open")))
    assert "libcudart.so.12" in found(python.torch_and_device, Status.PROBLEM, probes=broken)


def test_devices_are_shown_with_capability_and_memory() -> None:
    findings = list(python.torch_and_device(Subject(state=Path(), probes=with_torch(a_torch(cuda="12.8", devices=2)))))
    assert [finding.status for finding in findings] == [Status.OK] * 3
    assert findings[1].sentence == "cuda:0: H100, capability 9.0, 72.0 GiB of 80.0 GiB free"


def test_a_gpu_that_nobody_will_be_told_of_is_a_warning() -> None:
    with_gpu = probes(is_installed=without("pynvml"), load=lambda module: a_torch(cuda="12.8", devices=1))
    assert "pip install 'fedplcc[gpu]'" in found(python.torch_and_device, Status.WARNING, probes=with_gpu)
    without_gpu = probes(is_installed=without("pynvml"), load=lambda module: a_torch())
    assert [each.status for each in python.torch_and_device(Subject(state=Path(), probes=without_gpu))] == [
        Status.OK
    ] * 2


def test_versions_and_clocks_that_differ_are_told() -> None:
    assert network._same_version("x", "it serves", VERSION).status is Status.OK
    assert network._same_version("x", "it serves", f"{VERSION.rpartition('.')[0]}.99").status is Status.WARNING
    refused = network._same_version("x", "it serves", "9.9")
    assert (refused.status, "with fedplcc 9.9" in refused.sentence) == (Status.PROBLEM, True)
    assert "does not say its version" in network._same_version("x", "it serves", None).sentence
    subject = Subject(state=Path(), probes=probes(wall_clock=lambda: 1_767_225_700.0))
    (skewed,) = network._clock(subject, "Thu, 01 Jan 2026 00:00:00 GMT")
    assert "100 s ahead of the gateway's" in skewed.sentence
    for date in ("Thu, 01 Jan 2026 00:01:30 GMT", None, "yesterday"):
        assert list(network._clock(subject, date)) == []


def test_sizes_are_in_the_unit_that_fits() -> None:
    assert [in_bytes(size) for size in (5, 2048, 3 << 20, 5 << 30, 7 << 40)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
        "7.0 TiB",
    ]
