"""Open files and memory that a process needs, said in a sentence before it serves.

A process that runs out of either later fails in a place that chance chooses; some libraries end the whole process then.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedplcc.shared.errors import InvalidConfig

SERVICE_FILES = 256
"""Open files of an aggregator or a gateway: threads, streams and about a hundred connections."""
TRAINER_FILES = 128
"""Open files of a trainer: its data, its workers and one connection."""
MEMORY_BYTES = 128 << 20
"""Memory that a service needs beside its code: blocks of several folds, chunks of transfers."""
ADDRESS_BYTES = 512 << 20
"""Address space that a service needs beside its code: stacks of threads and heaps are reserved, not used."""

RESERVED_FILES = 128
"""Open files that connections leave: the database's, those of threads and of the log."""
MOST_CONNECTIONS = 100_000

RAISE_FILES = "raise the limit: ulimit -n, LimitNOFILE= in a unit, or --ulimit nofile= of a container"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of one kind of memory, and how to get more."""

    kind: str
    left_bytes: int
    needed_bytes: int
    remedy: str


def hold_streams() -> None:
    """Put /dev/null in the place of closed standard streams: a file would take it, and what a library says there."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            os.set_inheritable(number, True)
            if opened != number:
                os.close(opened)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115  (the process keeps it)


def require(*, open_files: int, is_service: bool = True) -> None:
    """Raise the process's own limit of open files as far as it may, and check that it has what it needs.

    Raises:
        InvalidConfig: It has too few open files, or a service too little memory.
    """
    lacks = [files_lack(open_files), memory_lack(rooms()) if is_service else None]
    for sentence in lacks:
        if sentence is not None:
            raise InvalidConfig(f"this process {sentence}")


def files_lack(needed: int) -> str | None:
    """Raise the soft limit of open files to the hard one; return why that is too little, or None."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # a sandbox may forbid it
            pass
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    return f"may have {soft} files and connections open at once and needs {needed}; {RAISE_FILES}"


def most_connections() -> int:
    """Return how many connections a server may accept, so that each may also have a file open."""
    return min(MOST_CONNECTIONS, max(8, (most_files() - RESERVED_FILES) // 2))


def most_files() -> int:
    """Return how many files and connections this process may have open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS + RESERVED_FILES if soft == resource.RLIM_INFINITY else soft


def memory_lack(rooms: tuple[Room, ...]) -> str | None:
    """Return why memory is too little, or None."""
    for room in rooms:
        if room.left_bytes < room.needed_bytes:
            left, needed = max(0, room.left_bytes) // _MIB, room.needed_bytes // _MIB
            return f"has {left} MiB of {room.kind} left and needs {needed}; {room.remedy}"
    return None


def rooms(read: Callable[[str], str] | None = None) -> tuple[Room, ...]:
    """Return what is left of each kind of memory that is limited here, with what may be swapped out.

    Args:
        read: Returns the text of a file of the system, empty if there is none.
    """
    read = read or _read
    used, machine = _sizes(read("/proc/self/status")), _sizes(read("/proc/meminfo"))
    found = []
    for which, name, kind, needed, flag in (
        (resource.RLIMIT_AS, "VmSize", "address space", ADDRESS_BYTES, "ulimit -v"),
        (resource.RLIMIT_DATA, "VmData", "data memory", ADDRESS_BYTES, "ulimit -d"),
    ):
        limit, _hard = resource.getrlimit(which)
        if limit != resource.RLIM_INFINITY and name in used:
            found.append(Room(kind, limit - used[name], needed, f"raise the limit: {flag}"))
    group = {
        name: read(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current", "swap.max", "swap.current")
    }
    swap, (most, now, most_swap, now_swap) = machine.get("SwapFree", 0), group.values()
    if most.isdigit() and now.isdigit():
        swap_too = min(swap, int(most_swap) - int(now_swap)) if most_swap.isdigit() and now_swap.isdigit() else swap
        stat = dict(line.split() for line in read("/sys/fs/cgroup/memory.stat").splitlines() if " " in line)
        files = int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))  # given up when memory is short
        remedy = "raise the container's limit: --memory, MemoryMax= in a unit"
        found.append(Room("the container's memory", int(most) - int(now) + files + swap_too, MEMORY_BYTES, remedy))
    if "MemAvailable" in machine:
        remedy = "end something else on this machine"
        found.append(Room("the machine's memory", machine["MemAvailable"] + swap, MEMORY_BYTES, remedy))
    return tuple(found)


def remedy_for(error: OSError) -> str:
    """Return what a person can do about an error of files, as the end of a sentence; empty if nothing is known."""
    remedies = {
        errno.ENOSPC: "make room",
        errno.EDQUOT: "make room, or raise the quota of its user",
        errno.EMFILE: RAISE_FILES,
        errno.ENFILE: "the whole machine has too many files open; end something else, or raise fs.file-max",
        errno.EROFS: "mount it so that it can be written",
        errno.EACCES: f"make it writable for user id {os.geteuid()}",
        errno.EPERM: f"make it writable for user id {os.geteuid()}",
        errno.EIO: "the disk is failing; look at the kernel's log",
        errno.ENOMEM: "give it more memory",
        errno.ENODEV: "mount it again",
        errno.ESTALE: "mount it again",
    }
    remedy = remedies.get(error.errno or 0)
    return "" if remedy is None else f"; {remedy}"


def is_out_of_files() -> bool:
    """Whether this process cannot open another file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _sizes(text: str) -> Mapping[str, int]:
    """Sizes in bytes by name, from lines such as `VmSize:  100 kB`."""
    lines = (line.partition(":") for line in text.splitlines() if line.endswith(" kB"))
    return {name: int(size.split()[0]) * 1024 for name, _, size in lines}


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
