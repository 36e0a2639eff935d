"""How work in progress learns that it should end."""

from __future__ import annotations

from collections.abc import Callable

ShouldStop = Callable[[], bool]
"""Asked before every batch; must be quick."""


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
