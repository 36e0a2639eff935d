"""Processes that a process has started, and where they listen, as Linux's /proc has it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp."""
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, as IPv6 too, and ::1, in the kernel's order of bytes."""


def descendants(pid: int) -> set[int]:
    """Processes that a process, or one of these, has started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, size = {pid}, 0
    while len(found) > size:
        size = len(found)
        found |= {child for child, parent in parents.items() if parent in found}
    return found - {pid}


def listening(pids: set[int]) -> set[str]:
    """The hosts that sockets of these processes listen at, as the kernel writes them."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(os.readlink(descriptor))
    hosts = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN and f"socket:[{inode}]" in sockets:
                hosts.add(local.partition(":")[0])
    return hosts
