"""Workers that are processes of this machine, and the pipe to each.

A process is spawned, never forked: gRPC and torch, once loaded, do not survive a fork. Its environment limits the threads of
the numerical libraries from the start. The kernel ends it with this process where it can (Linux); elsewhere the process ends
at its next message. Model bytes never go through the pipe: worker and aggregator name files to each other.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedplcc.local import die_with_parent
from fedplcc.shared.config.settings import environment_without_settings, thread_limits
from fedplcc.shared.errors import ResourceExhausted
from fedplcc.shared.importing import places
from fedplcc.simulation.messages import LinkLost

END_S = 10.0
"""Longest time from the end of a process's pipe to its own end."""
STDERR = 2
"""Descriptor of stderr: output of a user's own code in a worker must not mix with the results on stdout."""


class PipeLink:
    """One end of a pipe between two processes of this machine; the kernel reports when the other end is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, message: object) -> None:
        """See `Link`."""
        try:
            self._connection.send(message)
        except OSError:
            raise LinkLost from None

    def receive(self) -> Any:
        """See `Link`."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise LinkLost from None

    def close(self) -> None:
        """Close this end."""
        self._connection.close()


class WorkerProcess:
    """One worker process. The thread that starts it has to live as long, because the process ends with that thread."""

    def __init__(self, module: str, threads: int) -> None:
        """Start it.

        Args:
            module: Its program: takes the pipe's descriptor, the number of threads and the log level.
            threads: Processor threads of its numerical libraries.

        Raises:
            ResourceExhausted: The system lets no more processes start, or no more files be opened.
        """
        try:
            self._link, self._process = _started(module, threads)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ResourceExhausted(f"its worker process cannot be started: {why}; give fewer --jobs") from error

    def send(self, message: object) -> None:
        """See `PoolWorker`, as for the others."""
        self._link.send(message)

    def receive(self) -> Any:
        """Wait for a message."""
        return self._link.receive()

    def blob(self, sha256: str, path: Path) -> Path:
        """Return the file's path: the worker reads the file itself."""
        return path

    def end(self) -> None:
        """Kill it, if it still lives."""
        self._process.kill()
        self._process.wait()

    def why_ended(self) -> str:
        """Return how it ended; waits a moment for a process that is just ending."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.end()
        code = self._process.wait()
        if code < 0:
            return f"process was killed ({signal.Signals(-code).name})"
        return f"process ended with exit code {code}"


def _started(module: str, threads: int) -> tuple[PipeLink, subprocess.Popen[bytes]]:
    """Return this end of the pipe to a new process, and the process."""
    ours, theirs = multiprocessing.Pipe()
    guard = [sys.executable, "-I", "-S", str(Path(die_with_parent.__file__)), str(os.getpid())]
    level = logging.getLevelName(logging.getLogger("fedplcc.trainer").getEffectiveLevel()).lower()
    command = [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(threads), level]
    with theirs:
        process = subprocess.Popen(  # nosec B603 # a command of ours, without a shell
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=STDERR,
            pass_fds=[theirs.fileno()],
            env=_environment(threads),
            # Ctrl-C in a terminal reaches only the parent, which then ends its workers.
            start_new_session=True,
        )
    return PipeLink(ours), process


def _environment(threads: int) -> dict[str, str]:
    """Return the environment: limited threads, and the places where this process finds its packages."""
    paths = [str(Path(__file__).parents[2]), *places()]
    return {**environment_without_settings(), **thread_limits(threads), "PYTHONPATH": os.pathsep.join(paths)}
