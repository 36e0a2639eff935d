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
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedplcc.local import die_with_parent
from fedplcc.simulation.link import PipeLink
from shared.config.settings import environment_without_settings, thread_limits
from shared.errors import ResourceExhausted

END_S = 10.0
"""How long a process that is gone from its pipe may take to be gone altogether."""
STDERR = 2
"""Its descriptor: what somebody's code prints in a worker must not land among results on stdout."""


class WorkerProcess:
    """One worker; started in the thread that makes it, which has to live as long."""

    def __init__(self, threads: int) -> None:
        """Start it.

        Raises:
            ResourceExhausted: The system lets no more processes start, or no more files be opened.
        """
        try:
            self._link, self._process = _started(threads)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ResourceExhausted(f"its worker process cannot be started: {why}; give fewer --jobs") from error

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
        """How it ended; it is given a moment to do so by itself."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.end()
        code = self._process.wait()
        if code < 0:
            return f"process was killed ({signal.Signals(-code).name})"
        return f"process ended with exit code {code}"


def _started(threads: int) -> tuple[PipeLink, subprocess.Popen[bytes]]:
    """A new process, and this end of the pipe to it."""
    ours, theirs = multiprocessing.Pipe()
    guard = [sys.executable, "-I", "-S", str(Path(die_with_parent.__file__)), str(os.getpid())]
    level = logging.getLevelName(logging.getLogger("trainer").getEffectiveLevel()).lower()
    command = [sys.executable, "-P", "-m", "fedplcc.simulation.worker", str(theirs.fileno()), str(threads), level]
    with theirs:
        process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            pass_fds=[theirs.fileno()],
            env=_environment(threads),
            # Ctrl-C in a terminal reaches only the parent, which then ends the others.
            start_new_session=True,
        )
    return PipeLink(ours), process


def _environment(threads: int) -> dict[str, str]:
    """The environment: few threads, and every package is found where this process finds it."""
    here = str(Path(__file__).parents[2])
    paths = [here, *(str(Path(path).absolute()) for path in sys.path)]  # "" is the present folder
    return {**environment_without_settings(), **thread_limits(threads), "PYTHONPATH": os.pathsep.join(paths)}
