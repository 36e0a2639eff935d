"""A full screen on a terminal that is restored afterwards."""

from __future__ import annotations

import os
import sys
import termios
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live

_LOCAL_MODES = 3
"""Index of the local modes in a terminal's attributes."""


class FullScreen(AbstractContextManager["FullScreen"]):
    """The terminal's alternate screen within a block, without cursor and typed characters.

    Ctrl-C and Ctrl-Z stay signals; `leave` and `enter` free the terminal in between.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._attributes: list[Any] | None = None

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """Switch to the alternate screen."""
        self._attributes = _silenced()
        # Redirected output of others would appear on this screen.
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def leave(self) -> None:
        """Restore the terminal; doing it again changes nothing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._attributes is not None:
            # The flush drops what was typed at this screen: it is not meant for the shell.
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._attributes)
            self._attributes = None

    def draw(self, screen: RenderableType) -> None:
        """Replace the content of the screen."""
        if self._live is not None:
            self._live.update(screen, refresh=True)


def _silenced() -> list[Any] | None:
    """Switch off the echo of typed characters; returns the attributes before, None if this process may not change them."""
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return None  # the terminal would stop a background job for it
    attributes = termios.tcgetattr(sys.stdin)
    silent = [*attributes]
    silent[_LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    return attributes
