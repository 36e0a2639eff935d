"""A terminal that shows one full screen for a while, and is afterwards as it was."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

_LOCAL_MODES = 3
"""Where the attributes of a terminal say what it does with typed characters."""


class FullScreen(AbstractContextManager["FullScreen"]):
    """Within the block the terminal shows what is drawn, in a screen of its own, without cursor and typed characters.

    Ctrl-C and Ctrl-Z are signals as ever; `leave` and `enter` let the terminal be used in between.
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
        """Begin to show."""
        self._attributes = _silenced()
        # What others write meanwhile is theirs: redirecting it would write it into this screen.
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def leave(self) -> None:
        """Give the terminal back as it was; doing it again changes nothing."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._attributes is not None:
            # What was typed at this screen is not meant for the shell.
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._attributes)
            self._attributes = None

    def draw(self, lines: Sequence[Text]) -> None:
        """Show these lines."""
        if self._live is not None:
            self._live.update(Group(*lines), refresh=True)


def _silenced() -> list[Any] | None:
    """Have the terminal not show what is typed; returns how it was, None where that is not ours to change."""
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        return None  # a job in the background would be stopped for it
    attributes = termios.tcgetattr(sys.stdin)
    silent = [*attributes]
    silent[_LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    return attributes
