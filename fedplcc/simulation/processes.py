"""Workers that are processes of this machine.

A process is spawned, never forked: gRPC and torch, once loaded, do not survive a fork. Its environment has the number of
threads of its numerical libraries from its first moment. It dies with this process where the kernel can do that; elsewhere
it ends at its next message. Model bytes never go through the pipe: worker and aggregator name files to each other.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fedplcc
from fedplcc import die_with_parent
from fedplcc.simulation.link import PipeLink
from shared.config import environment_without_settings, thread_limits

END_S = 10.0
"""How long a worker that is gone from its pipe may take to be gone altogether."""
STDERR = 2
"""Its descriptor: what somebody's code prints in a worker must not land among results on stdout."""


class WorkerProcess:
    """One worker; started in the thread that makes it, which has to live as long."""

    def __init__(self, threads: int) -> None:
        ours, theirs = multiprocessing.Pipe()
        self._link = PipeLink(ours)
        guard = [sys.executable, "-I", "-S", str(Path(die_with_parent.__file__)), str(os.getpid())]
        level = logging.getLevelName(logging.getLogger("trainer").getEffectiveLevel()).lower()
        command = [sys.executable, "-P", "-m", "fedplcc.simulation.worker"]
        with theirs:
            self._process = subprocess.Popen(
                [*guard, *command, str(theirs.fileno()), str(threads), level],
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                pass_fds=[theirs.fileno()],
                env=_environment(threads),
                # Ctrl-C in a terminal reaches only the parent, which then ends the others.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: object) -> None:
        """See `HiredWorker`, as for the others."""
        self._link.send(message)

    def receive(self) -> Any:
        """Wait for a message."""
        return self._link.receive()

    def blob(self, sha256: str, path: Path) -> Path:
        """The file: the worker reads it itself."""
        return path

    def end(self) -> None:
        """Kill it, if it still lives."""
        self._process.kill()
        self._process.wait()

    def why_ended(self) -> str:
        """How it ended."""
        code = self._process.wait()
        if code < 0:
            return f"process was killed ({signal.Signals(-code).name})"
        return f"process ended with exit code {code}"


def _environment(threads: int) -> dict[str, str]:
    """The environment: few threads, and every package is found where this process finds it."""
    here = str(Path(fedplcc.__file__).parent.parent)
    paths = [here, *(str(Path(path).absolute()) for path in sys.path)]  # "" is the present folder
    return {**environment_without_settings(), **thread_limits(threads), "PYTHONPATH": os.pathsep.join(paths)}
