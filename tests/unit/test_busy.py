"""Processes that burn the cores are ended, whatever ends the tests."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.busy import burning
from tests.support import ROOT

KILLED = """
import os, signal
from tests.busy import burning
with burning(1) as (burner,):
    print(burner.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_they_burn_within_the_block_and_are_gone_after_it() -> None:
    with burning(2) as burners:
        assert [burner.poll() for burner in burners] == [None, None]
    assert [burner.returncode for burner in burners] == [-signal.SIGKILL, -signal.SIGKILL]


def test_they_end_by_themselves_when_the_process_that_began_them_is_killed() -> None:
    # The pipe closes when its last writer has ended: the burner holds it too.
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0
