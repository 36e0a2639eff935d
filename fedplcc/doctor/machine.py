"""Checks of processor, memory, limits, clock and ports."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from fedplcc.doctor.findings import Finding, Subject, in_bytes, ok, problem, warning
from fedplcc.shared.process.resources import RAISE_FILES, SERVICE_FILES, memory_lack, rooms

ENOUGH_FILES = 1024
"""Open files that an aggregator of hundreds of trainers needs."""
ENOUGH_MEMORY = 1 << 30
ENOUGH_SHARED = 64 << 20
"""Bytes of /dev/shm; what containers have by default."""
FIRST_YEAR_S = 1_767_225_600
"""2026: a clock before it was never set."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
STA_UNSYNC = 0x40
"""Bit of the kernel's clock status: not synchronised."""


def processor(subject: Subject) -> Iterator[Finding]:
    """Threads and instructions of the processor, and a container's share of it."""
    probes = subject.probes
    available = len(os.sched_getaffinity(0))
    info = probes.read("/proc/cpuinfo")
    flags = next((line.partition(":")[2].split() for line in info.splitlines() if line.startswith("flags")), [])
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    known = [name for name in ("avx2", "avx512f", "amx_tile") if name in flags]
    text = f"{available} threads, {model or platform.machine()}" + (f", {', '.join(known)}" if known else "")
    if platform.machine() in ("x86_64", "AMD64") and flags and "avx2" not in flags:
        yield warning(
            "processor", f"{text}: without AVX2 training is slow, and last bits differ from hosts that have it"
        )
    else:
        yield ok("processor", text)
    share = _quota(probes.read("/sys/fs/cgroup/cpu.max"))
    if share is not None and share < 1:
        yield warning("processor", f"the container may use {share:.1f} of a processor: give it 1 or more (--cpus)")
    for name in THREAD_VARIABLES:
        value = probes.environment.get(name, "")
        if value.isdigit() and int(value) > available:
            yield warning("processor", f"{name}={value} is more than the {available} threads here; lower or unset it")


def memory(subject: Subject) -> Iterator[Finding]:
    """Memory, and the shared memory that containers often lack."""
    sizes = dict(line.split(":", 1) for line in subject.probes.read("/proc/meminfo").splitlines() if ":" in line)
    available, total = (int(sizes.get(name, "0 kB").split()[0]) * 1024 for name in ("MemAvailable", "MemTotal"))
    limit = subject.probes.read("/sys/fs/cgroup/memory.max").strip()
    room = min(available, int(limit)) if limit.isdigit() else available
    text = f"{in_bytes(room)} available of {in_bytes(total)}"
    lack = memory_lack(rooms(subject.probes.read))
    if lack is not None:
        yield problem("memory", f"a service {lack}")
    elif total and room < ENOUGH_MEMORY:
        yield warning(
            "memory", f"{text}: a trainer with torch needs about {in_bytes(ENOUGH_MEMORY)}; end something else"
        )
    elif total:
        yield ok("memory", text)
    if not subject.probes.exists("/dev/shm"):
        yield warning("memory", "there is no /dev/shm: processes of torch share memory there; mount a tmpfs on it")
        return
    shared = subject.probes.disk_usage(Path("/dev/shm"))
    if shared.free < ENOUGH_SHARED:
        yield warning(
            "memory",
            f"/dev/shm has {in_bytes(shared.free)} free: start the container with --shm-size=256m, or clear it",
        )


def open_files(subject: Subject, limits: Callable[[int], tuple[int, int]] = resource.getrlimit) -> Iterator[Finding]:
    """The limit of open files and connections."""
    _soft, most = limits(resource.RLIMIT_NOFILE)  # a service raises its own limit to the hard one
    if most != resource.RLIM_INFINITY and most < SERVICE_FILES:
        yield problem(
            "open files",
            f"a service may have {most} files and connections open, and needs {SERVICE_FILES}; {RAISE_FILES}",
        )
    elif most != resource.RLIM_INFINITY and most < ENOUGH_FILES:
        yield warning(
            "open files",
            f"{most} may be open at once, each trainer takes some: ulimit -n {4 * ENOUGH_FILES}, or LimitNOFILE= in a unit",
        )
    else:
        yield ok("open files", f"{'no limit' if most == resource.RLIM_INFINITY else most} at once")


def clock(subject: Subject, status: Callable[[], int | None] | None = None) -> Iterator[Finding]:
    """The clock: certificates, logs and histories depend on it, results do not."""
    if subject.probes.wall_clock() < FIRST_YEAR_S:
        yield problem("clock", "the clock is years behind: certificates will be refused; set it, and turn on NTP")
        return
    kept = (status or _clock_status)()
    if kept is not None and kept & STA_UNSYNC:
        yield warning("clock", "nothing keeps the clock right, so times of hosts will not fit each other; turn on NTP")
    else:
        yield ok("clock", "kept right" if kept is not None else "set")


def ports(subject: Subject) -> Iterator[Finding]:
    """The services' ports."""
    for port, flag in subject.ports.items():
        family = socket.AF_INET6 if ":" in subject.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((subject.host, port))
                listener.listen(1)
            except OSError as error:
                yield _unusable(subject.host, port, flag, error)
                if error.errno == errno.EADDRNOTAVAIL:
                    return
            else:
                yield ok("ports", f"{subject.host}:{port} is free")


def _unusable(host: str, port: int, flag: str, error: OSError) -> Finding:
    if error.errno == errno.EADDRINUSE:
        return warning(
            "ports", f"{host}:{port} is taken: fine if it is the service itself, else choose another with {flag}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return problem("ports", f"{host} is no address of this machine: choose one of its own, or 0.0.0.0 for all")
    return problem("ports", f"{host}:{port} cannot be listened at ({error.strerror}): choose another port with {flag}")


def _quota(text: str) -> float | None:
    """Processors that a control group may use, from cpu.max."""
    quota, _, period = text.strip().partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _clock_status() -> int | None:
    """The kernel's status word of its clock; None if unknown."""

    class Timex(ctypes.Structure):
        # The first fields of struct timex; the rest is left out but for its room.
        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_byte * 256),
        )

    state = Timex()  # modes = 0 changes nothing
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state))
    except (AttributeError, OSError):
        return None
    return None if answer < 0 else int(state.status)
