"""Named places at which a test may end or watch this process: before and after every durable write, call and transition.

    failpoint("blob.link.before")
    with passing("blob.link"):  # a failpoint before the block, and one after it if it succeeds
        ...

A failpoint costs one comparison while nothing is armed, which is always so in production. A test arms the whole process by
the environment, before it starts, with a folder that test and process share:

    FEDPLCC_FAILPOINTS=FOLDER

Every failpoint that is passed is appended to FOLDER/passed, one name a line; the process kills itself with SIGKILL at the
one that FOLDER/armed names, `NAME COUNT`: at its COUNT-th passing since that line was written. Within one process a test
may `install` any function instead.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from shared.process.log import get_logger

log = get_logger("failpoints")

VARIABLE = "FEDPLCC_FAILPOINTS"
"""Environment variable that arms a process with a folder."""
PASSED_FILE, ARMED_FILE = "passed", "armed"
"""Files in that folder: what was passed, and where to die."""

Hook = Callable[[str], None]
"""Told the name of every failpoint as it is passed, from any thread."""

_hook: Hook | None = None


def failpoint(*name: str) -> None:
    """Pass a named place, its parts joined by dots; nothing happens unless a test has armed this process."""
    if _hook is not None:
        _hook(".".join(name))


class passing:  # noqa: N801  # reads as a word: with passing("blob.link")
    """A block with the failpoints NAME.before and, if it succeeds, NAME.after."""

    __slots__ = ("_name",)

    def __init__(self, *name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        failpoint(*self._name, "before")

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            failpoint(*self._name, "after")


def is_armed() -> bool:
    """Whether anything is told of the failpoints that are passed."""
    return _hook is not None


def install(hook: Hook | None) -> None:
    """Have a function told of every failpoint, or nobody any more."""
    global _hook
    _hook = hook


class _Killer:
    """Writes down what is passed, and kills this process where it is told to."""

    def __init__(self, folder: Path) -> None:
        self._armed = folder / ARMED_FILE
        self._passed = os.open(folder / PASSED_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._lock = threading.Lock()
        self._order, self._count = "", 0

    def __call__(self, name: str) -> None:
        os.write(self._passed, f"{name}\n".encode())
        with self._lock:
            try:
                order = self._armed.read_text(encoding="utf-8")
            except FileNotFoundError:
                order = ""
            if order != self._order:
                self._order, self._count = order, 0
            wanted, _, count = order.strip().partition(" ")
            if name != wanted:
                return
            self._count += 1
            if self._count >= int(count or 1):
                os.kill(os.getpid(), signal.SIGKILL)


def arm_from_environment() -> None:
    """Arm this process if the environment says so, with a warning in its log."""
    folder = os.environ.get(VARIABLE)
    if folder:
        install(_Killer(Path(folder)))
        log.warning("failpoints_are_armed", folder=folder, hint=f"for tests only: unset {VARIABLE}")
