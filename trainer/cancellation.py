"""Cancellation of work in progress: who asks for it, and how the work ends."""

from __future__ import annotations

import time
from collections.abc import Callable

ShouldStop = Callable[[], bool]
"""Says whether the work should end; asked before every batch, so it must be quick."""
POLL_S = 0.1
"""Time between two looks at `ShouldStop` during a wait."""


class Cancelled(Exception):
    """The work was asked to end before it was done; nothing of it is to be used."""


def never() -> bool:
    """Never ask to stop."""
    return False


def check(should_stop: ShouldStop) -> None:
    """Go on, or raise.

    Raises:
        Cancelled: `should_stop()` holds.
    """
    if should_stop():
        raise Cancelled


def pause(seconds: float, should_stop: ShouldStop) -> None:
    """Wait; returns early when `should_stop()` holds."""
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and not should_stop():
        time.sleep(min(rest, POLL_S))
