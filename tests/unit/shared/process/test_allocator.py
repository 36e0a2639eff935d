"""Memory that is freed is used again."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

CODE = """
import resource, sys
from fedplcc.shared.process.allocator import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    pieces = [b"x" * size for size in 12 * [900_000]]

if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    work()
begin = faults()
for _ in range(50):
    work()
print(faults() - begin)
"""

IN_THREADS = """
import re, sys
from pathlib import Path
from threading import Barrier, Thread
from fedplcc.shared.process.allocator import keep_freed_memory

def work(mine):
    for turn in range(NUM):
        all_there.wait()
        if turn == mine:
            pieces = [b"x" * size for size in 12 * [900_000]]
            del pieces

NUM = 16
if sys.argv[1] == "keep":
    keep_freed_memory()
all_there = Barrier(NUM)
threads = [Thread(target=work, args=(mine,)) for mine in range(NUM)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""

is_glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the GNU C library")


@is_glibc
def test_memory_that_was_freed_is_not_asked_for_anew() -> None:
    # Otherwise ten megabytes, two thousand pages, are touched anew by each of the fifty.
    assert number_of(CODE, "keep") < 500 < number_of(CODE, "leave")


@is_glibc
@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how much memory a process has")
def test_memory_that_one_thread_freed_is_anothers() -> None:
    # Ten megabytes of each of 16 threads, one after the other: with a heap each, 160 stay.
    assert number_of(IN_THREADS, "keep") < 80 << 10


def number_of(code: str, how: str) -> int:
    answer = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, timeout=60, check=True)
    return int(answer.stdout)
