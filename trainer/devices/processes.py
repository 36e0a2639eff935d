"""Processes of the further devices of a training, from its start to its end: none outlives the training, or the trainer.

Each gets its work over a pipe, tells over another that it has it, and ends when the first one closes. A thread looks after
them: where one ends too early, or the training is to stop, it ends all, and what the first device waits for fails at once.
"""

from __future__ import annotations

import os
import pickle  # nosec B403 # a pipe between this process and its own child
import shutil
import signal
import subprocess  # nosec B404 # this interpreter, without a shell
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from fedplcc.shared.config.settings import environment_without_settings, steady_parts_on_loopback, thread_limits
from fedplcc.shared.errors import FailedPrecondition, FedplccError, Internal
from fedplcc.shared.importing import places
from fedplcc.trainer.cancellation import POLL_S, Cancelled, ShouldStop
from fedplcc.trainer.devices.group import Group, abort, joined

END_S = 10.0
"""Longest time from the failure of the first device to the end of the process that is its cause."""

Work = Callable[[Group], object]
"""Work of a further device; it is pickled, so it is a function of a module with its arguments."""


@contextmanager
def group_of(devices: Sequence[torch.device], work: Work, threads: int, should_stop: ShouldStop) -> Iterator[Group]:
    """Let further devices do their work while the block does the first one's.

    Raises:
        Cancelled: `should_stop()` held.
        FailedPrecondition: The work cannot be sent: code of the site's owner that Python cannot pickle.
        Internal: The process of a device ended too early.
    """
    try:
        sent = pickle.dumps(work)
    except Exception as error:
        raise FailedPrecondition(
            f"this run's model or method cannot train on several devices: {type(error).__name__} when it is sent to another "
            "process; start the trainer with one --device"
        ) from error
    steady_parts_on_loopback()
    folder = Path(tempfile.mkdtemp(prefix="fedplcc-"))
    children = _Children(should_stop)
    try:
        for rank, device in enumerate(devices[1:], 1):
            children.start([str(rank), str(len(devices)), str(device), str(folder)], threads)
        children.send(sent)
        with joined(0, len(devices), devices[0], folder) as group:
            yield group
            children.check()
    except (Cancelled, FedplccError):
        raise
    except Exception as error:
        children.wait()
        children.check(error)
        raise
    finally:
        children.end()
        shutil.rmtree(folder, ignore_errors=True)


class _Children:
    """The processes of the further devices."""

    def __init__(self, should_stop: ShouldStop) -> None:
        self._should_stop = should_stop
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._cause: FedplccError | Cancelled | None = None
        self._said = ""
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="devices", daemon=True)

    def start(self, arguments: Sequence[str], threads: int) -> None:
        """Start one with the arguments of `rank`'s program."""
        environment = {
            **environment_without_settings(),
            **thread_limits(threads),
            "PYTHONPATH": os.pathsep.join(places()),
        }
        process = subprocess.Popen(  # nosec B603 # this interpreter, without a shell
            [sys.executable, "-P", "-m", "fedplcc.trainer.devices.rank", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C in a terminal reaches the trainer alone, which ends its processes
        )
        self._processes.append((arguments[2], process))

    def send(self, sent: bytes) -> None:
        """Look after them from now on; give each its work, and wait until it has it."""
        self._watcher.start()
        for _, process in self._processes:
            assert process.stdin is not None
            process.stdin.write(sent)
            process.stdin.flush()
        for _, process in self._processes:
            assert process.stdout is not None
            if os.read(process.stdout.fileno(), 1) != READY:
                raise BrokenPipeError

    def wait(self) -> None:
        """Wait a moment for the end of a process that may be why the first device failed."""
        if self._watcher.ident is not None:
            self._watcher.join(END_S)

    def check(self, error: Exception | None = None) -> None:
        """Raise what ended the processes, if anything did, unless the first device failed in the same way by itself."""
        is_own = type(error).__name__ == self._said and "/gloo/" not in str(error)
        if self._cause is not None and not is_own:
            raise self._cause from error

    def end(self) -> None:
        """End those that live."""
        self._is_over.set()
        for _, process in self._processes:
            process.kill()
        if self._watcher.ident is not None:
            self._watcher.join()
        for _, process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it did not take of its work
                    if pipe is not None:
                        pipe.close()

    def _watch(self) -> None:
        while self._cause is None and not self._is_over.wait(POLL_S):
            if self._should_stop():
                self._cause = Cancelled()
            for name, process in self._processes:
                if process.poll() is not None and self._cause is None:
                    self._said = _said_by(process)
                    self._cause = Internal(f"a process that trains on {name} ended with {self._said}")
        if self._cause is not None:
            for _, process in self._processes:
                process.kill()
            abort()


READY = b"+"
"""What a process says when it has its work; what comes after it is the class of the error that ended it."""


def _said_by(process: subprocess.Popen[bytes]) -> str:
    """Return what an ended process said of its end, or the signal or exit code where it said nothing."""
    assert process.stdout is not None
    said = os.read(process.stdout.fileno(), 200).lstrip(READY).decode("ascii", "replace").strip()
    code = process.returncode
    return said or (signal.Signals(-code).name if code < 0 else f"exit code {code}")
