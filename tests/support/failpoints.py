"""Failpoints of this process: a hook for a while, and the death of the process at one of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fedplcc.shared.process.failpoints import Hook, install
from tests.support.hosts.failing_disk import Killed


@contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    """Call a function at every failpoint."""
    install(hook)
    try:
        yield
    finally:
        install(None)


@contextmanager
def killed_at(at: int, prefix: str = "") -> Iterator[list[str]]:
    """Kill the process, as which the block counts, at its n-th failpoint; it passes none after that.

    Yields the failpoints passed, among those with the prefix: fewer than n if it has lived.
    """
    passed: list[str] = []

    def kill(name: str) -> None:
        if name.startswith(prefix):
            passed.append(name)
            if len(passed) >= at:
                raise Killed(name)

    with hooked(kill), suppress(Killed):
        yield passed
