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


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the GNU C library")
def test_memory_that_was_freed_is_not_asked_for_anew() -> None:
    def num_faults(how: str) -> int:
        answer = subprocess.run(
            [sys.executable, "-c", CODE, how], capture_output=True, text=True, timeout=60, check=True
        )
        return int(answer.stdout)

    # Otherwise ten megabytes, two thousand pages, are touched anew by each of the fifty.
    assert num_faults("keep") < 500 < num_faults("leave")
