"""A share of places for each caller: a few calls at once, some more in line, and a refusal for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fedplcc.shared.errors import Overloaded


@dataclass(slots=True)
class _Line:
    """The places of one caller that has calls."""

    free: asyncio.Semaphore
    num_calls: int = 0


class Places:
    """Places of callers, on one event loop. A caller waits for its own calls alone; who has no call is forgotten."""

    def __init__(self, at_once: int, waiting: int, what: str) -> None:
        """Begin with every place free.

        Args:
            at_once: Calls of one caller that go on at the same time.
            waiting: Calls of one caller that may wait for them.
            what: What the places are for, in the plural.
        """
        self._at_once, self._waiting, self._what = at_once, waiting, what
        self._lines: dict[Hashable, _Line] = {}

    @asynccontextmanager
    async def place(self, caller: Hashable | None) -> AsyncIterator[None]:
        """Hold a place of the caller's share within the block; waits in line for it. None has no share and never waits.

        Raises:
            Overloaded: The caller's line is full.
        """
        free = await self.take(caller)
        try:
            yield
        finally:
            free()

    async def take(self, caller: Hashable | None) -> Callable[[], None]:
        """Take a place as `place` does; returns what gives it back, on the loop's thread.

        Raises:
            Overloaded: The caller's line is full.
        """
        if caller is None:
            return _nothing
        line = self._lines.setdefault(caller, _Line(asyncio.Semaphore(self._at_once)))
        if line.num_calls >= self._at_once + self._waiting:
            raise Overloaded(
                f"{line.num_calls} {self._what} of this caller are under way; try again when one has ended"
            )
        line.num_calls += 1
        try:
            await line.free.acquire()
        except BaseException:
            self._leave(caller, line)
            raise

        def free() -> None:
            line.free.release()
            self._leave(caller, line)

        return free

    def _leave(self, caller: Hashable, line: _Line) -> None:
        line.num_calls -= 1
        if not line.num_calls:
            del self._lines[caller]


def _nothing() -> None:
    """Give back no place."""
