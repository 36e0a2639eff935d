"""Failpoints: named places where a test may kill or watch a process, around every durable write, call and transition.

    failpoint("blob.link.before")
    with passing("blob.link"):  # a failpoint before the block, and one after it if it succeeds
        ...

An unarmed failpoint, as always in production, costs one comparison. A test arms a process before it starts by an environment
variable that names a shared folder:

    FEDPLCC_FAILPOINTS=FOLDER

The process appends each failpoint that it passes to FOLDER/passed, one name a line. It kills itself with SIGKILL at the
failpoint that FOLDER/armed names, `NAME COUNT`: at the COUNT-th pass since that line was written. A test may `install` any
function in its own process instead.

"Killed at any moment" is proved only where the moments are known: kills at random never say what they missed. The sweep
lists its points by itself, so that new durable code needs no new test. SQLite's own writes have no points; its syncing is
trusted, and of a commit that has not returned any prefix may be there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from fedplcc.shared.process.log import get_logger

log = get_logger("shared.failpoints")

VARIABLE = "FEDPLCC_FAILPOINTS"
"""Environment variable that arms a process with a folder."""
PASSED_FILE, ARMED_FILE = "passed", "armed"
"""Files in that folder: the failpoints passed, and the one that kills."""

Hook = Callable[[str], None]
"""Function called with the name of every failpoint passed, from any thread."""

_hook: Hook | None = None


def failpoint(*name: str) -> None:
    """Pass a failpoint, its name's parts joined by dots; does nothing in an unarmed process."""
    if _hook is not None:
        _hook(".".join(name))


class passing:  # noqa: N801  # reads as a word: with passing("blob.link")
    """Context manager with the failpoints NAME.before and, if the block succeeds, NAME.after."""

    __slots__ = ("_name",)

    def __init__(self, *name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        failpoint(*self._name, "before")

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is None:
            failpoint(*self._name, "after")


def is_armed() -> bool:
    """Whether a hook is installed."""
    return _hook is not None


def install(hook: Hook | None) -> None:
    """Install the function called at every failpoint; None removes it."""
    global _hook
    _hook = hook


class _Killer:
    """Hook that records the failpoints passed and kills this process at the armed one."""

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
    """Arm this process if the environment variable is set, with a warning in its log."""
    folder = os.environ.get(VARIABLE)
    if folder:
        install(_Killer(Path(folder)))
        log.warning("failpoints_are_armed", folder=folder, hint=f"for tests only: unset {VARIABLE}")
