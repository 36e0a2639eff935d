"""Remedies that fit errors, and what is left of memory."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from fedplcc.aggregator.store.blobs.disk_errors import disk_errors
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.resources import (
    MEMORY_BYTES,
    Room,
    files_lack,
    is_out_of_files,
    memory_lack,
    remedy_for,
    rooms,
)

MACHINE = {"/proc/meminfo": "MemTotal:  4000000 kB\nMemAvailable:  2000000 kB\n"}
CONTAINER = {
    **MACHINE,
    "/sys/fs/cgroup/memory.max": "200000000\n",
    "/sys/fs/cgroup/memory.current": "190000000\n",
    "/sys/fs/cgroup/memory.stat": "anon 90000000\nactive_file 60000000\ninactive_file 40000000\n",
}


def test_only_a_full_disk_or_quota_asks_to_make_room() -> None:
    asking = {number for number in errno.errorcode if "make room" in remedy_for(OSError(number, "text"))}
    assert asking == {errno.ENOSPC, errno.EDQUOT}


def test_a_write_that_lacks_a_descriptor_asks_to_raise_the_limit() -> None:
    with pytest.raises(StoreUnavailable, match="Too many open files; raise the limit: ulimit -n"), disk_errors():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_files_that_the_kernel_gives_up_when_memory_is_short_count_as_room() -> None:
    (container, machine) = [room for room in rooms(lambda path: CONTAINER.get(path, "")) if "memory" in room.kind]
    assert container.left_bytes == 110_000_000
    assert machine.left_bytes == 2_048_000_000
    assert memory_lack((container,)) == (
        "has 104 MiB of the container's memory left and needs 128; "
        "raise the container's limit: --memory, MemoryMax= in a unit"
    )
    assert memory_lack((machine,)) is None


@pytest.mark.parametrize(
    ("most", "now", "swapped"), [("0", "0", 0), ("500000000", "100000000", 400_000_000), ("max", "5", 1_024_000_000)]
)
def test_what_may_be_swapped_out_counts_as_room(most: str, now: str, swapped: int) -> None:
    files = {**CONTAINER, "/proc/meminfo": MACHINE["/proc/meminfo"] + "SwapFree:  1000000 kB\n"}
    files |= {"/sys/fs/cgroup/memory.swap.max": most, "/sys/fs/cgroup/memory.swap.current": now}
    (container, machine) = [room for room in rooms(lambda path: files.get(path, "")) if "memory" in room.kind]
    assert container.left_bytes == 110_000_000 + swapped
    assert machine.left_bytes == 2_048_000_000 + 1_024_000_000


def test_what_just_suffices_suffices() -> None:
    assert memory_lack((Room("memory", MEMORY_BYTES, MEMORY_BYTES, ""),)) is None
    assert memory_lack((Room("memory", MEMORY_BYTES - 1, MEMORY_BYTES, ""),)) is not None
    assert memory_lack((Room("memory", -5, MEMORY_BYTES, "x"),)) == "has 0 MiB of memory left and needs 128; x"


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    try:
        assert files_lack(128) is None
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_running_out_of_descriptors_is_noticed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert not is_out_of_files()
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert is_out_of_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
