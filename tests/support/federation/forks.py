"""Processes that begin as forks of one that has loaded the services, which takes seconds of a processor for each otherwise.

A fork runs `python -m MODULE` from its first line: a process of its own, with its own log, environment and folder. Commands
that a test types on the way to what it is about are forks too (`typed`). Real starts, interpreter and imports included, are
those of services by `fedplcc` (the demo, the guides, the wheel) and of what needs something of a start, see `can_fork`.

    python -m tests.support.federation.forks SOCKET KIND

serves forks until the other end of its socket is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

LOADED = {
    "service": ("fedplcc.aggregator.app", "fedplcc.gateway.app", "fedplcc.command.all_commands"),
    "trainer": ("fedplcc.trainer.app", "torchvision", "fedplcc.trainer.worker", "fedplcc.trainer.task.runner"),
}
"""What a parent of each kind has loaded; that of the services and of commands has no torch, as services have none."""
TRAINERS = ("fedplcc.trainer", "tests.support.federation.numpy_trainer")
"""Beginnings of the modules of trainers."""
READ_AT_START = ("LD_", "PYTHON", "OMP_", "GRPC_", "FAKETIME", "MALLOC_", "FEDPLCC_THREADS")
"""Beginnings of variables that the interpreter or a library reads when it loads."""
MESSAGE_BYTES = 1 << 20


def can_fork(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork does what a start of this module with these variables would do."""
    if not module.startswith(("fedplcc.aggregator", "fedplcc.gateway", *TRAINERS)):
        return False
    return "--threads" not in arguments and not any(name.startswith(READ_AT_START) for name in environment)


class Forked:
    """A process that the parent has forked; speaks as `subprocess.Popen` does."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid, self._status = pid, status
        self.returncode: int | None = None
        self._lock = threading.Lock()  # several threads may wait for its end
        weakref.finalize(self, os.close, status)

    def poll(self) -> int | None:
        """The exit code, the negative number of a signal that ended it; None while it runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            with self._lock:
                if self.returncode is None:
                    text = os.read(self._status, 16)
                    self.returncode = int(text) if text else -signal.SIGKILL
        return self.returncode


class Parent:
    """The other end of a process that serves forks."""

    def __init__(self, kind: str) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), kind]
            variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            self._process = subprocess.Popen(command, cwd=ROOT, env=variables, pass_fds=[theirs.fileno()])
        atexit.register(self.close)

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> Forked:
        """Begin `python -m MODULE ARGUMENTS` in a folder, with what it reads, prints and complains to, and other files."""
        ours, theirs = os.pipe()
        mask = re.search(r"^Umask:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert mask is not None
        request = json.dumps([module, list(arguments), str(cwd), dict(environment), int(mask[1], 8)]).encode()
        with self._lock:
            socket.send_fds(self._socket, [request], [*streams, theirs])
            os.close(theirs)
            return Forked(int(self._socket.recv(16)), ours)

    def close(self) -> None:
        """End the parent; its forks run on."""
        self._socket.close()
        self._process.wait()


@cache
def parent_of(module: str) -> Parent:
    """The parent of a module's processes, started when it is first needed."""
    return Parent("trainer" if module.startswith(TRAINERS) else "service")


def typed(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    given: str = "",
    trains: bool = False,
    timeout_s: float = 250.0,
) -> subprocess.CompletedProcess[str]:
    """Type `fedplcc ARGUMENTS` in a folder, with a line of input; returns what it said when it has ended.

    A command that trains, or that looks at models, is a fork of the parent that has loaded torch.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(environment or {})}
    with tempfile.TemporaryFile() as reads, tempfile.TemporaryFile() as prints, tempfile.TemporaryFile() as complains:
        reads.write(given.encode())
        reads.seek(0)
        streams = [each.fileno() for each in (reads, prints, complains)]
        parent = parent_of(TRAINERS[0] if trains else "fedplcc")
        code = parent.fork("fedplcc", arguments, cwd, variables, streams).wait(timeout_s)
        prints.seek(0)
        complains.seek(0)
        said = prints.read().decode(), complains.read().decode()
    return subprocess.CompletedProcess(["fedplcc", *arguments], code, *said)


class _Job(NamedTuple):
    module: str
    arguments: list[str]


def _serve(served: socket.socket) -> _Job | None:
    """Fork for each request; returns in each fork with what it is to do, and with None when the socket is closed."""
    running: dict[int, int] = {}

    def reap(*_signal: object) -> None:
        while running:  # a signal may come while one is answered: each end is told once, by whoever asks
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not ended:
                return
            writes = running.pop(ended)
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                os.write(writes, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(writes)

    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, files, _flags, _address = socket.recv_fds(served, MESSAGE_BYTES, 5)
        if not message:
            return None
        *streams, writes = files
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            return _become(streams, *json.loads(message))
        running[pid] = writes
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        for stream in streams:
            os.close(stream)
        served.send(str(pid).encode())


def _become(
    streams: Sequence[int], module: str, arguments: list[str], cwd: str, environment: dict[str, str], umask: int
) -> _Job:
    """Be as a process that was just started."""
    os.umask(umask)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = str(Path(sys.executable).parent) if module == "fedplcc" else cwd  # the command is a script there
    return _Job(module, arguments)


def main(descriptor: int, kind: str) -> None:
    """Load what the kind needs, then serve; a fork goes on as its module's own process."""
    # Libraries have the one thread that tests/support says, which is a trainer's own setting where nobody chooses another.
    for name in LOADED[kind]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    served = socket.socket(fileno=descriptor)
    job = _serve(served)
    served.detach()
    if job is not None:
        sys.argv = [job.module, *job.arguments]
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
